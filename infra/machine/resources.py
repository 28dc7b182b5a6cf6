"""What this machine has: cores, memory, GPUs, as far as this process may use them.

Owns the reading of /proc, cgroups and nvidia-smi; must not judge. A limit that a container sets counts, not what the
machine has outside it.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

_NVIDIA_SMI_TIMEOUT_S: Final = 30.0
"""A driver that starts up answers within seconds; a broken one never."""
_CGROUP: Final = Path("/sys/fs/cgroup")
_CPUINFO: Final = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """The memory of one CUDA device as the driver reports it."""

    name: str
    """Product name, such as `NVIDIA H200`."""
    memory_bytes: int
    """All of its memory."""
    free_bytes: int
    """What no process holds now."""


def list_gpus() -> list[GpuMemory]:
    """The NVIDIA GPUs that the driver shows; empty without a driver or when it does not answer.

    A device that reports no numbers, as those that share the host's memory, counts with 0 bytes.
    """
    return [
        GpuMemory(name=name, memory_bytes=mebibytes(total) << 20, free_bytes=mebibytes(free) << 20)
        for name, total, free in ask_nvidia_smi("name", "memory.total", "memory.free") or ()
    ]


def ask_nvidia_smi(*fields: str) -> list[list[str]] | None:
    """Return the fields (`nvidia-smi --help-query-gpu`) of each GPU, in index order; None when there is no answer.

    Empty without the tool, and where it finds no device or driver, as in containers without GPUs. The first field may
    hold commas.
    """
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0:
        return []
    rows = [[field.strip() for field in line.rsplit(",", len(fields) - 1)] for line in answer.stdout.splitlines()]
    return [row for row in rows if len(row) == len(fields) and row[0]]


def mebibytes(field: str) -> int:
    """Return a memory that nvidia-smi tells; 0 for one that it does not (`[N/A]`)."""
    return int(field) if field.isdecimal() else 0


def num_cores() -> float:
    """Cores that this process may use at once: its affinity, or a smaller quota of its control group."""
    cores = float(len(os.sched_getaffinity(0)))
    quota, _, period = _read_text(_CGROUP / "cpu.max").partition(" ")
    if quota.isdecimal() and period.strip().isdecimal():
        return min(cores, int(quota) / int(period))
    return cores


def cpu_model_name(cpuinfo: Path = _CPUINFO) -> str:
    """The CPU's model name, such as `AMD EPYC`; its architecture where the kernel does not tell."""
    lines = _read_text(cpuinfo).splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine() or sys.platform


def cpu_flags(cpuinfo: Path = _CPUINFO) -> frozenset[str]:
    """Instruction set extensions, such as `avx2`, `avx512f` or `asimd`; empty where the kernel does not tell."""
    for line in _read_text(cpuinfo).splitlines():
        key, _, flags = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(flags.split())
    return frozenset()


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory that this process may still take: the kernel's estimate, within its control groups' limits.

    A group's page cache counts as used, though the kernel would give some of it back. `root`: where /proc and /sys are.
    """
    import psutil

    available = int(psutil.virtual_memory().available)
    return max(0, min([available, *_left_in_groups(root)]))


def _left_in_groups(root: Path) -> Iterator[int]:
    """Yield what is left in the groups of this process, and in those around them, that limit memory.

    In a container its group may be mounted as the topmost one, under another name: what is not there limits nothing.
    """
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if "memory" in controllers.split(","):
            mount, limit_file, usage_file = "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        elif not controllers:  # version 2; beside version 1 it holds no limits
            mount, limit_file, usage_file = "", "memory.max", "memory.current"
        else:
            continue
        group = PurePosixPath(name.lstrip("/"))
        for folder in (root / "sys/fs/cgroup" / mount / part for part in (group, *group.parents)):
            with suppress(OSError, ValueError):  # no such group here, or `max`
                yield int((folder / limit_file).read_text()) - int((folder / usage_file).read_text())


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
