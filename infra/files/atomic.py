"""Files that appear whole or not at all: written beside their name, synced, then renamed onto it.

Owns the write; must not decide what is written. The folder has to exist. A reader never sees half a file, a writer that
dies leaves at most a `.NAME.*.tmp` that no reader looks at, and a power cut after the return keeps the new content.
"""

import errno
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from schemas.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

_ADVICE: Final = {
    errno.ENOSPC: "the disk is full: free space there or point cluster.fileroot at another disk",
    errno.EDQUOT: "the quota is used up: free space there or point cluster.fileroot at another disk",
    errno.EROFS: "the file system is read-only: point cluster.fileroot at a folder that can be written",
    errno.EACCES: "permission denied: make the folder writable or point cluster.fileroot elsewhere",
    errno.EPERM: "not permitted: make the folder writable or point cluster.fileroot elsewhere",
    errno.ENOENT: "the folder does not exist: create it or point cluster.fileroot elsewhere",
    errno.ENOTDIR: "a part of the path is a file: point cluster.fileroot at a folder",
    errno.EISDIR: "a folder has that name: remove it or point cluster.fileroot elsewhere",
    errno.EEXIST: "another process has made it: see whether it is at work on the same run",
    errno.ENAMETOOLONG: "the name is too long for the file system: shorten it or cluster.fileroot",
}


def write_bytes_atomically(path: Path, data: bytes) -> None:
    """Make `path` hold exactly `data`; an older file stays as it was until the new one is on disk.

    Raises:
        StoreError: the file system refused, with what to free or where to point cluster.fileroot.
    """

    def write(file: BinaryIO) -> None:
        file.write(data)

    write_atomically(path, write)


def write_text_atomically(path: Path, text: str) -> None:
    """Make `path` hold exactly `text` in UTF-8, its line ends as given.

    Raises:
        StoreError: as `write_bytes_atomically`.
    """
    write_bytes_atomically(path, text.encode("utf-8"))


def write_table_atomically(path: Path, table: "pa.Table") -> None:
    """Make `path` a Parquet file (zstd) of `table`, its schema's metadata included.

    Raises:
        StoreError: as `write_bytes_atomically`.
    """

    def write(file: BinaryIO) -> None:
        import pyarrow.parquet as pq

        pq.write_table(table, file, compression="zstd")

    write_atomically(path, write)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` survive a power cut; quietly nothing where folders cannot be synced.

    Raises:
        OSError: the folder cannot be opened, or the disk reports an error of its own.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def sync_file(descriptor: int) -> None:
    """Make what was written to a file survive a power cut; quietly nothing where the file system has no such thing.

    Raises:
        OSError: the disk reports an error.
    """
    with _unsupported_sync_ignored():
        os.fsync(descriptor)


def write_atomically(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Make `path` hold what `write` puts into the file it is given; an exception of its own leaves `path` untouched.

    Raises:
        StoreError: as `write_bytes_atomically`.
    """
    # 48 letters keep a long but legal name legal once the marks of a temporary file are added.
    temporary = path.with_name(f".{path.name[:48]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        try:
            with temporary.open("xb") as file:
                write(file)
                file.flush()
                sync_file(file.fileno())
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as exc:
        raise _refusal(path, exc) from exc


def make_folder(path: Path) -> None:
    """Make a folder and those above it; nothing where it exists.

    Raises:
        StoreError: as `write_bytes_atomically`.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise _refusal(path, exc) from exc


def make_private_root(path: Path) -> None:
    """Make a folder below `cluster.fileroot` that nobody but its owner enters; one that exists keeps its mode.

    Completions and private test sets lie in it, and file systems of clusters are shared. A team that shares them opens
    the folder once with chmod: what is made in it later has the mode that the umask gives.

    Raises:
        OSError: it cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)


def make_own_folder(path: Path) -> None:
    """Make a folder that nobody has made before, and those above it.

    Raises:
        StoreError: as `write_bytes_atomically`, or it exists.
    """
    make_folder(path.parent)
    try:
        path.mkdir()
    except OSError as exc:
        raise _refusal(path, exc) from exc


def is_gone(exc: OSError) -> bool:
    """Whether an error of reading says that the file is not there, or no more what it was when it was opened.

    The latter is how a network file system tells of a file that another machine has replaced or removed meanwhile.
    """
    return exc.errno in (errno.ENOENT, errno.ESTALE)


def _refusal(path: Path, exc: OSError) -> StoreError:
    advice = _ADVICE.get(exc.errno or 0, "check the disk or point cluster.fileroot elsewhere")
    return StoreError(f"cannot write {path} ({exc.strerror or exc}): {advice}")


@contextmanager
def _unsupported_sync_ignored() -> Generator[None]:
    """Some network and FUSE file systems refuse fsync (EINVAL, ENOTSUP): the rename is still atomic there."""
    try:
        yield
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
