"""Digests of weight files: which model it is, whatever its folder is called.

SHA-256 over fixed blocks, the digests of the blocks hashed again: blocks are read by parallel threads (hashlib lets go
of the GIL), so one large file is as fast as many small ones. SHA-256 and not BLAKE2b, because CPUs have instructions
for it (measured 1.4 against 0.3 GiB/s on one core). A file seen before (device, inode, size, mtime) is not read again.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, cast

from infra.files.atomic import write_text_atomically
from schemas.checkpoint import CheckpointReport
from schemas.errors import CheckpointError, StoreError

BLOCK_BYTES: Final = 64 << 20
"""Part of the digest's definition: changing it changes every digest."""

_READ_BYTES: Final = 4 << 20
"""One thread's buffer: large enough for streaming, small enough for many threads."""

_MAX_THREADS: Final = 16
"""Beyond this the disk is the limit."""

_MAX_CACHED: Final = 20_000
"""Entries kept in the cache, the newest: about 2 MB."""

_SETTLED_S: Final = 2.0
"""A file changed more recently is not cached: clocks of file systems are too coarse to see a second change."""


class FileMark(NamedTuple):
    """What tells, without reading, that a file is still the one that was read."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int

    @property
    def key(self) -> str:
        """As the cache names it."""
        return f"{self.device}:{self.inode}:{self.size_bytes}:{self.mtime_ns}"


def mark_file(path: Path) -> FileMark:
    """Return the mark of a file.

    Raises:
        OSError: it is not there.
    """
    status = path.stat()
    return FileMark(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def digest_weights(files: Sequence[Path], *, cache_file: Path | None = None) -> str:
    """Return the 128-bit hex digest over the bytes of every shard.

    It depends on the shards' contents alone: not on names, order or folder. The same weights saved in other shards or
    with other metadata have another digest. `cache_file` remembers the digests of files already read; a damaged or
    unwritable cache costs time, never a wrong digest.

    Raises:
        CheckpointError: a shard vanished, cannot be read, or changed while it was read.
    """
    cache = _read_cache(cache_file)
    known: dict[str, str] = {}
    parts: list[str] = []
    for path in files:
        try:
            mark = mark_file(path)
            digest = cache.get(mark.key) or _digest_file(path, mark)
        except OSError as exc:
            raise CheckpointError(
                f"{path}: cannot be read ({exc.strerror}); the trainer may have removed it: name a checkpoint that is "
                f"kept"
            ) from exc
        parts.append(digest)
        if time.time() - mark.mtime_ns / 1e9 > _SETTLED_S:
            known[mark.key] = digest
    if cache_file is not None and any(key not in cache for key in known):
        _write_cache(cache_file, known)
    # Sorted: the headers inside the shards say which tensor is where, so their order carries nothing.
    return hashlib.sha256(("milepost-weights\x00" + "\n".join(sorted(parts))).encode()).hexdigest()[:32]


def digest_checkpoint(report: CheckpointReport, *, cache_file: Path | None = None) -> str:
    """Return the 128-bit hex digest of the model that a report tells of.

    Of a whole model that of its weights; of an adapter over those, its base's and how the two are put together.

    Raises:
        CheckpointError: there are no weights; else as `digest_weights`.
    """
    if not report.weight_files:
        raise CheckpointError(f"{report.path}: no weights to be told by: {'; '.join(report.problems)}")
    own = digest_weights(report.weight_files, cache_file=cache_file)
    if report.adapter is None:
        return own
    base = digest_weights(report.adapter.base_weight_files, cache_file=cache_file)
    return hashlib.sha256(f"milepost-adapter\x00{own}\n{base}\n{report.adapter.settings}".encode()).hexdigest()[:32]


def _digest_file(path: Path, mark: FileMark) -> str:
    """Return the hex digest of one file's bytes."""
    offsets = range(0, max(mark.size_bytes, 1), BLOCK_BYTES)
    num_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(offsets))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with ThreadPoolExecutor(num_threads) as pool:
            blocks = list(pool.map(partial(_digest_block, descriptor), offsets))
    finally:
        os.close(descriptor)
    if mark_file(path) != mark:
        raise CheckpointError(f"{path}: changed while it was read; wait until the trainer has finished saving")
    return hashlib.sha256(mark.size_bytes.to_bytes(8, "little") + b"".join(blocks)).hexdigest()


def _digest_block(descriptor: int, offset: int) -> bytes:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_READ_BYTES))
    end = offset + BLOCK_BYTES
    while offset < end:
        count = os.preadv(descriptor, [buffer[: min(_READ_BYTES, end - offset)]], offset)
        if count == 0:
            break
        digest.update(buffer[:count])
        offset += count
    return digest.digest()


def _read_cache(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}  # absent or damaged: the files are read again
    entries = cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
    return {key: text for key, text in entries.items() if isinstance(text, str) and _is_digest(text)}


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)


def _write_cache(path: Path, known: Mapping[str, str]) -> None:
    merged = {**_read_cache(path), **known}  # read again: another run may have added its own meanwhile
    newest = dict(list(merged.items())[-_MAX_CACHED:])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, json.dumps(newest))
    except (OSError, StoreError):
        return  # a cache that cannot be kept costs the next run its time, not this one its result
