"""Devices and cores are divided, each given once, never more than there are."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.launchers.placement import plan_placement
from infra.machine.gpus import visible_gpus
from schemas.errors import SetupError


@given(replicas=st.integers(1, 12), per_replica=st.integers(1, 8), extra=st.integers(0, 5), cores=st.integers(1, 64))
def test_gpus_are_given_once_and_whole(replicas: int, per_replica: int, extra: int, cores: int) -> None:
    gpus = [str(index) for index in range(replicas * per_replica + extra)]
    placements = plan_placement(replicas, per_replica, "cuda", gpu_ids=gpus, cpu_ids=range(cores))
    given_out = [gpu for placement in placements for gpu in placement.gpu_ids]
    assert len(given_out) == len(set(given_out)) == replicas * per_replica
    assert {len(placement.gpu_ids) for placement in placements} == {per_replica}
    assert all(placement.num_cpus >= 1 for placement in placements)


@given(replicas=st.integers(1, 64), extra=st.integers(0, 64))
def test_cores_are_divided_evenly_and_each_is_given_once(replicas: int, extra: int) -> None:
    cores = range(100, 100 + replicas + extra)
    placements = plan_placement(replicas, 1, "cpu", cpu_ids=cores)
    sizes = [placement.num_cpus for placement in placements]
    assert sum(sizes) == len(cores)
    assert max(sizes) - min(sizes) <= 1
    if replicas > 1:
        assert sorted(core for placement in placements for core in placement.cpu_ids) == list(cores)


def test_a_single_replica_on_a_cpu_is_not_pinned() -> None:
    (placement,) = plan_placement(1, 1, "cpu", cpu_ids=range(4))
    assert (placement.num_cpus, placement.cpu_ids, placement.gpu_ids) == (4, (), ())


def test_more_replicas_than_cores_are_refused_with_the_numbers() -> None:
    with pytest.raises(SetupError, match=r"3 replicas need 3 CPU cores.*may use 2.*d2"):
        plan_placement(3, 1, "cpu", cpu_ids=range(2))


def test_more_gpus_than_there_are_are_refused_with_the_numbers() -> None:
    with pytest.raises(SetupError, match=r"3 replicas x 2 GPUs need 6 GPUs.*offers 4 \(0, 1, 2, 3\).*d2"):
        plan_placement(3, 2, "cuda", gpu_ids="0123", cpu_ids=range(8))


def test_one_replica_larger_than_the_machine_is_refused() -> None:
    with pytest.raises(SetupError, match=r"need 8 GPUs.*offers 1 \(0\).*fewer GPUs per replica"):
        plan_placement(1, 8, "cuda", gpu_ids="0", cpu_ids=range(8))


def test_several_gpus_per_replica_make_no_sense_on_a_cpu() -> None:
    with pytest.raises(SetupError, match="t1p1"):
        plan_placement(1, 2, "cpu", cpu_ids=range(8))


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program named nvidia-smi first in PATH that lists three GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf 'GPU-aaa\\nGPU-bbb\\nGPU-ccc\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


@pytest.mark.usefixtures("nvidia_smi")
@pytest.mark.parametrize(
    ("inherited", "expected"),
    [
        (None, ("0", "1", "2")),
        ("2,0", ("2", "0")),
        (" 1 , 2 ", ("1", "2")),
        ("GPU-bbb", ("GPU-bbb",)),
        ("MIG-x", ("MIG-x",)),
        ("", ()),
        ("-1", ()),
        ("0,-1,2", ("0",)),
        ("0,7,1", ("0",)),
        ("1,1", ("1",)),
        ("GPU-zzz", ()),
    ],
)
def test_an_inherited_limit_is_read_as_cuda_does(inherited: str | None, expected: tuple[str, ...]) -> None:
    assert visible_gpus({} if inherited is None else {"CUDA_VISIBLE_DEVICES": inherited}) == expected


def test_a_driver_without_devices_is_a_machine_without_gpus(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed' >&2\nexit 9\n")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0"}) == ()


def test_a_driver_that_does_not_answer_is_no_machine_without_gpus(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("#!/nowhere/sh\n")
    with pytest.raises(SetupError, match="nvidia-smi does not answer"):
        visible_gpus({})
