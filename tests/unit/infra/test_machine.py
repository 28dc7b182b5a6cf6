"""Cores, memory and GPUs are read as the system tells them."""

import os
from pathlib import Path

import pytest

from infra.machine import Gpu, cpu_flags, list_gpus, memory_available_bytes, num_cores, parse_gpus


def test_gpus_are_read_with_their_memory() -> None:
    assert parse_gpus("NVIDIA H200, 143771, 140000\nNVIDIA GB10, [N/A], [N/A]\n") == [
        Gpu(name="NVIDIA H200", memory_bytes=143771 << 20, free_bytes=140000 << 20),
        Gpu(name="NVIDIA GB10", memory_bytes=0, free_bytes=0),
    ]


@pytest.mark.parametrize("script", ["exit 9", "echo 'No devices were found' >&2; exit 6"])
def test_a_driver_that_does_not_answer_shows_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert list_gpus() == []


def test_there_are_no_more_cores_than_the_machine_has() -> None:
    assert 0 < num_cores() <= (os.cpu_count() or 1)


def test_memory_is_available_but_no_more_than_there_is() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory_available_bytes() <= total


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2\n", {"fpu", "avx2"}),
        ("Features\t: fp asimd\n", {"fp", "asimd"}),
        ("", set[str]()),
    ],
)
def test_instruction_sets_are_read_on_both_architectures(tmp_path: Path, cpuinfo: str, expected: set[str]) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert cpu_flags(tmp_path / "cpuinfo") == expected


def test_a_kernel_without_cpuinfo_shows_no_instruction_sets(tmp_path: Path) -> None:
    assert cpu_flags(tmp_path / "absent") == frozenset()
