"""Only regular files are read: a FIFO blocks its reader for ever, a device never ends."""

import stat
from pathlib import Path

from schemas.errors import DatasetError

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def require_regular_file(path: Path) -> None:
    """Check that `path` is a regular file, or a link to one.

    Raises:
        DatasetError: it is anything else, or is not there.
    """
    try:
        mode = path.stat().st_mode
    except OSError as exc:
        raise DatasetError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise DatasetError(f"{path} is {kind}, expected a regular file; set valid_dataset.path to one")
