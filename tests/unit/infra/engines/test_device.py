"""The memory that a process may take is what the tightest of its control groups leaves."""

from pathlib import Path

import psutil
import pytest

from infra.engines.device import available_memory_bytes

MIB = 1 << 20
NO_LIMIT = 9223372036854771712
"""Version 1 writes it for none."""


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
