"""Hidden folders in which publishers prepare files before renaming them into the store.

Owns who may use a folder and when a dead one is removed; knows nothing of tables. A live publisher holds a lock on its
folder; the lock dies with the process, so what a killed one left is recognised and removed by the next, never what a
live one still needs.
"""

import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_OWNER: Final = "owner"
_ABANDONED_AFTER_S: Final = 7 * 24 * 3600.0
"""Age from which a folder goes where its lock cannot tell: a file system without locks, or a death before locking."""
NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
"""What flock says on a file system without locks."""


@contextmanager
def staging_folder(parent: Path) -> Generator[Path]:
    """Make a folder inside `parent` that is this caller's alone; it is removed at the end, whatever happened.

    Raises:
        OSError: the folder cannot be made.
    """
    folder, descriptor = _claim(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def remove_abandoned(parent: Path, *, now: float | None = None) -> int:
    """Remove what dead publishers left in `parent` and return how many folders that were; never raises.

    Args:
        parent: where `staging_folder` makes its folders; it need not exist.
        now: Unix time in seconds; None for the clock's.
    """
    removed = 0
    with suppress(OSError):
        for folder in list(parent.iterdir()):
            if folder.is_dir() and _is_abandoned(folder, time.time() if now is None else now):
                shutil.rmtree(folder, ignore_errors=True)
                removed += not folder.exists()
    return removed


def _claim(parent: Path) -> tuple[Path, int]:
    """Make and lock a folder; again when another publisher's clean-up took it for abandoned before it was locked."""
    while True:
        folder = parent / f"{os.getpid()}-{secrets.token_hex(6)}"
        folder.mkdir(parents=True)
        with suppress(FileNotFoundError):
            descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                if exc.errno not in NO_LOCKS:
                    os.close(descriptor)
                    continue
            if (folder / _OWNER).exists():
                return folder, descriptor
            os.close(descriptor)


def _is_abandoned(folder: Path, now: float) -> bool:
    try:
        is_old = now - folder.stat().st_mtime > _ABANDONED_AFTER_S
        descriptor = os.open(folder / _OWNER, os.O_RDWR)
    except FileNotFoundError:
        return folder.exists() and now - folder.stat().st_mtime > _ABANDONED_AFTER_S
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return is_old
    else:
        return True
    finally:
        os.close(descriptor)
