"""Cores, memory and GPUs are read as the system tells them."""

import os
from pathlib import Path

import psutil
import pytest

from infra.machine.resources import (
    GpuMemory,
    ask_nvidia_smi,
    available_memory_bytes,
    cpu_flags,
    cpu_model_name,
    list_gpus,
    num_cores,
)

MIB = 1 << 20
NO_LIMIT = 9223372036854771712
"""Version 1 writes it for none."""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of this name, first in PATH, that prints what lies beside it."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat '{tmp_path}/listing'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return program


def test_gpus_are_read_with_their_memory(nvidia_smi: Path) -> None:
    nvidia_smi.with_name("listing").write_text("NVIDIA H200, 143771, 140000\nNVIDIA GB10, [N/A], [N/A]\n")
    assert list_gpus() == [
        GpuMemory(name="NVIDIA H200", memory_bytes=143771 << 20, free_bytes=140000 << 20),
        GpuMemory(name="NVIDIA GB10", memory_bytes=0, free_bytes=0),
    ]


def test_fields_are_told_apart_where_a_name_holds_a_comma(nvidia_smi: Path) -> None:
    nvidia_smi.with_name("listing").write_text("NVIDIA H200, 143771, 580.1\nGB10, Grace, [N/A], 581\n\n")
    rows = ask_nvidia_smi("name", "memory.total", "driver_version")
    assert rows == [["NVIDIA H200", "143771", "580.1"], ["GB10, Grace", "[N/A]", "581"]]


@pytest.mark.parametrize("script", ["exit 9", "echo 'No devices were found' >&2; exit 6"])
def test_a_driver_without_devices_shows_no_gpus(nvidia_smi: Path, script: str) -> None:
    nvidia_smi.write_text(f"#!/bin/sh\n{script}\n")
    assert list_gpus() == []
    assert ask_nvidia_smi("uuid") == []


def test_a_tool_that_does_not_run_is_no_answer(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("#!/nowhere/sh\n")
    assert list_gpus() == []
    assert ask_nvidia_smi("uuid") is None


def test_there_are_no_more_cores_than_the_machine_has() -> None:
    assert 0 < num_cores() <= (os.cpu_count() or 1)


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


def test_a_processor_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_bytes(b"vendor_id\t: x\nmodel name\t: AMD EPYC \xae 9\nmodel name\t: other\n")
    assert cpu_model_name(tmp_path / "cpuinfo") == "AMD EPYC \ufffd 9"


def test_a_kernel_without_cpuinfo_shows_no_instruction_sets(tmp_path: Path) -> None:
    assert cpu_flags(tmp_path / "absent") == frozenset()
    assert cpu_model_name(tmp_path / "absent")


def make_group(root: Path, folder: str, limit: int | str, used: int, *, version: int) -> None:
    group = root / "sys/fs/cgroup" / folder
    group.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for name, value in zip(names, (limit, used), strict=True):
        (group / name).write_text(f"{value}\n")


def tell_groups(root: Path, text: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(text)


def test_a_job_of_a_scheduler_has_what_its_own_group_leaves(tmp_path: Path) -> None:
    tell_groups(tmp_path, "0::/system.slice/slurmstepd.scope/job_7/step_batch\n")
    make_group(tmp_path, "system.slice", "max", 900 * MIB, version=2)
    make_group(tmp_path, "system.slice/slurmstepd.scope/job_7", 64 * MIB, 14 * MIB, version=2)
    make_group(tmp_path, "system.slice/slurmstepd.scope/job_7/step_batch", "max", 14 * MIB, version=2)
    assert available_memory_bytes(tmp_path) == 50 * MIB


def test_version_1_beside_an_empty_version_2(tmp_path: Path) -> None:
    tell_groups(tmp_path, "5:cpu,cpuacct:/x\n4:memory:/slurm/uid_0/job_7\n1:name=systemd:/a:b\n0::/\n")
    make_group(tmp_path, "memory", NO_LIMIT, 900 * MIB, version=1)
    make_group(tmp_path, "memory/slurm/uid_0/job_7", 64 * MIB, 60 * MIB, version=1)
    assert available_memory_bytes(tmp_path) == 4 * MIB


@pytest.mark.parametrize(("version", "line", "folder"), [(2, "0::", ""), (1, "4:memory:", "memory")])
def test_in_a_container_its_group_is_the_topmost(tmp_path: Path, version: int, line: str, folder: str) -> None:
    tell_groups(tmp_path, f"{line}/docker/0123\n")
    make_group(tmp_path, folder, 32 * MIB, 40 * MIB, version=version)
    assert available_memory_bytes(tmp_path) == 0


@pytest.mark.parametrize("text", [None, "", "0::/\n"])
def test_without_limits_it_is_what_the_kernel_says(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        tell_groups(tmp_path, text)
    assert MIB < available_memory_bytes(tmp_path) <= psutil.virtual_memory().total
