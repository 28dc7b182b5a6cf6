"""Names that follow from content alone: the seed of a sample and the hash of a prompt.

Both are functions of what is asked, never of who answers: replicas, chunks and attempts do not enter.
"""

import hashlib
from array import array
from collections.abc import Sequence
from typing import NamedTuple

_SEED_BITS = 63
"""Seeds fit a signed 64-bit integer: torch generators, JSON readers and Parquet all keep them exactly."""


class SampleKey(NamedTuple):
    """The name of one sample within a run."""

    item_id: str
    repeat: int


def sample_seed(run_seed: int, item_id: str, repeat: int) -> int:
    """Return the seed in [0, 2^63) of one completion: f(run seed, item_id, repeat), by BLAKE2b."""
    message = f"{run_seed}\x00{repeat}\x00{item_id}".encode()
    digest = hashlib.blake2b(message, digest_size=8, person=b"milepost-seed").digest()
    return int.from_bytes(digest, "little") >> (64 - _SEED_BITS)


def prompt_hash(token_ids: Sequence[int]) -> str:
    """Return the 128-bit hex digest of a prompt's token ids (each in [0, 2^31))."""
    return hashlib.blake2b(array("i", token_ids).tobytes(), digest_size=16, person=b"milepost-prompt").hexdigest()
