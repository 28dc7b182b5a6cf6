"""What this machine has: cores, memory, GPUs, as far as this process may use them.

Owns the reading of /proc, cgroups and nvidia-smi; must not judge. A limit that a container sets counts, not what the
machine has outside it.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NVIDIA_SMI_TIMEOUT_S: Final = 20.0
_CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One CUDA device as the driver reports it."""

    name: str
    """Product name, such as `NVIDIA H200`."""
    memory_bytes: int
    """All of its memory."""
    free_bytes: int
    """What no process holds now."""


def list_gpus() -> list[Gpu]:
    """The NVIDIA GPUs that the driver shows; empty without a driver or when it does not answer."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        result = subprocess.run(query, capture_output=True, text=True, timeout=_NVIDIA_SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(result.stdout) if result.returncode == 0 else []


def parse_gpus(listing: str) -> list[Gpu]:
    """Read `name, total MiB, free MiB` lines; a device that reports no numbers counts with 0 bytes."""
    gpus: list[Gpu] = []
    for line in listing.splitlines():
        name, _, numbers = line.partition(",")
        total, _, free = numbers.partition(",")
        if name.strip():
            gpus.append(Gpu(name=name.strip(), memory_bytes=_mebibytes(total), free_bytes=_mebibytes(free)))
    return gpus


def _mebibytes(text: str) -> int:
    return int(text) << 20 if text.strip().isdecimal() else 0  # "[N/A]" on devices that share the host's memory


def num_cores() -> float:
    """Cores that this process may use at once: its affinity, or a smaller quota of its control group."""
    cores = float(len(os.sched_getaffinity(0)))
    quota, _, period = _read_text(_CGROUP / "cpu.max").partition(" ")
    if quota.isdecimal() and period.strip().isdecimal():
        return min(cores, int(quota) / int(period))
    return cores


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instruction set extensions, such as `avx2`, `avx512f` or `asimd`; empty where the kernel does not tell."""
    for line in _read_text(cpuinfo).splitlines():
        key, _, flags = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(flags.split())
    return frozenset()


def memory_available_bytes() -> int:
    """Memory that a new process can take without swapping: the machine's, or what its control group leaves."""
    available = _available_of_the_machine()
    limit = _read_text(_CGROUP / "memory.max").strip()
    if not limit.isdecimal():
        return available
    used = _read_text(_CGROUP / "memory.current").strip()
    return max(0, min(available, int(limit) - (int(used) if used.isdecimal() else 0)))


def _available_of_the_machine() -> int:
    for line in _read_text(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
