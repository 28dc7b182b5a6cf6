"""A digest of a sample of the weight files' bytes: whether two processes loaded the same model, in milliseconds.

Blocks spread evenly over each file, the headers with names and shapes among them. Weights of another training step
differ in all blocks; a single changed weight is found by the whole digest (digests.py), not by this one.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

_NUM_BLOCKS: Final = 1024
"""Blocks of one file: what a network disk reads back in a second even when nothing is cached."""
_BLOCK_BYTES: Final = 4096
_SUFFIXES: Final = (".safetensors", ".bin", ".pt")


def sample_weights(folder: Path, *, adapter: Path | None = None) -> str | None:
    """Return the 128-bit hex digest over a sample of the weights in `folder`, and of an adapter's in its own.

    None without any, or when unreadable.
    """
    digest = hashlib.blake2b(digest_size=16, person=b"milepost-sample")
    try:
        found = [*folder.iterdir(), *(adapter.iterdir() if adapter else ())]
        paths = sorted(path for path in found if path.suffix in _SUFFIXES)
        for path in paths:
            _add_file(digest, path)
    except OSError:
        return None
    return digest.hexdigest() if paths else None


def _add_file(digest: "hashlib.blake2b", path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        digest.update(size.to_bytes(8, "little"))
        for offset in range(0, size, max(_BLOCK_BYTES, size // _NUM_BLOCKS)):
            digest.update(os.pread(descriptor, _BLOCK_BYTES, offset))
    finally:
        os.close(descriptor)
