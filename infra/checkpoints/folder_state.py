"""What tells, without reading a file, whether a folder still holds the checkpoint that was seen in it."""

import os
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from infra.checkpoints.layouts.base import is_weights


class FolderState(NamedTuple):
    """What a folder's entries say without being read."""

    mark: str
    """Digest of the path and the weight files' names, inodes, sizes and times."""
    signature: str
    """The same of all files."""
    saved_at: datetime
    """Last change of a weight file."""
    changed_s: float
    """Last change of any file or link to it, seconds since 1970."""


def read_state(folder: Path, model: Path) -> FolderState | None:
    """Return the state of a checkpoint's folder; None while there are no weights, or when it has vanished.

    Raises:
        OSError: it cannot be read now, which tells nothing of it: look again.
    """
    weights, everything = (blake2b(os.fsencode(folder.absolute()), digest_size=16) for _ in range(2))
    saved_s = changed_s = 0.0
    try:
        with os.scandir(model) as listing:
            entries = sorted((entry for entry in listing if entry.is_file()), key=lambda entry: entry.name)
        for entry in entries:
            status = entry.stat()
            line = f"\0{entry.name}\0{status.st_ino}\0{status.st_size}\0{status.st_mtime_ns}".encode(
                errors="surrogateescape"
            )
            everything.update(line)
            changed_s = max(changed_s, status.st_mtime, status.st_ctime)
            if is_weights(entry.name):
                weights.update(line)
                saved_s = max(saved_s, status.st_mtime)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not saved_s:
        return None
    return FolderState(weights.hexdigest(), everything.hexdigest(), datetime.fromtimestamp(saved_s, UTC), changed_s)
