"""Files of others, opened only where they are regular: a FIFO blocks its reader for ever, a device never ends."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


class IrregularFileError(OSError):
    """What a path leads to is no regular file; `strerror` names what it is."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, or what a link to one leads to, for reading bytes.

    Raises:
        IrregularFileError: it is something else. A device is not even opened, which could have an effect.
        OSError: it cannot be opened.
    """
    _require_regular(path.stat().st_mode, path)
    # the path may lead elsewhere by now: without O_NONBLOCK a FIFO would wait for its writer
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _require_regular(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        OSError: as `open_regular`.
    """
    with open_regular(path) as file:
        return file.read()


def advise(exc: OSError) -> str:
    """Return what to do about a file that cannot be read, as the end of a message."""
    return "put a regular file there" if isinstance(exc, IrregularFileError) else "check its permissions"


def describe_irregular(mode: int) -> str | None:
    """Return what a path of this mode leads to; None for a regular file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "something else")


def _require_regular(mode: int, path: Path) -> None:
    kind = describe_irregular(mode)
    if kind is not None:
        raise IrregularFileError(errno.EINVAL, f"{kind}; only regular files are read", str(path))
