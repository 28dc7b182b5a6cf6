"""Faults of the disk: full, or read-only, while a run writes to it. Real mounts; they need root."""

import errno
import os
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.faults.fault import Fault
from benchmarks.faults.scene import Scene

_DISK: Final = "160m"
"""A command asks for 64 MiB free before it starts."""
_BLOCK: Final = b"\0" * (1 << 20)


def _why_not() -> str | None:
    if os.geteuid() != 0:
        return "only root can mount a disk"
    with tempfile.TemporaryDirectory() as folder:
        try:
            _mount("-t", "tmpfs", "tmpfs", folder)
            _unmount(Path(folder))
        except (OSError, subprocess.CalledProcessError) as exc:
            return f"no disk can be mounted here: {exc}"
    return None


@contextmanager
def _small_disk(scene: Scene) -> Generator[None]:
    """Give the trial's fileroot a disk of its own."""
    scene.fileroot.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(scene.fileroot))
    try:
        yield
    finally:
        scene.end()
        _unmount(scene.fileroot)


def _fill(scene: Scene) -> bool:
    with (scene.fileroot / "filler").open("wb", buffering=0) as file:
        for block in (_BLOCK, b"\0"):  # to the last byte
            try:
                while True:
                    file.write(block)
            except OSError as exc:
                if exc.errno != errno.ENOSPC:
                    raise
    return True


def _make_room(scene: Scene) -> None:
    (scene.fileroot / "filler").unlink(missing_ok=True)


def _forbid_writing(scene: Scene) -> bool:
    """Mount the folder onto itself, read-only: files that are open stay so, as after a remount of a network disk."""
    folder = str(scene.fileroot)
    _mount("--bind", folder, folder)
    _mount("-o", "remount,bind,ro", folder)
    return True


def _allow_writing(scene: Scene) -> None:
    if any(line.split()[4] == str(scene.fileroot) and " ro," in line for line in _mounts()):
        _unmount(scene.fileroot)


def _mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def _unmount(folder: Path) -> None:
    # lazily: a process that was killed a moment ago may still hold a file
    subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


FAULTS: Final = (
    Fault(name="disk-full", inject=_fill, heal=_make_room, surroundings=_small_disk, unavailable=_why_not),
    Fault(
        name="disk-read-only",
        inject=_forbid_writing,
        heal=_allow_writing,
        surroundings=_small_disk,
        unavailable=_why_not,
    ),
)
"""On this machine and on a cluster."""
