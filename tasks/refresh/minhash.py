"""MinHash: the Jaccard similarity of two texts from short signatures, and which texts are worth comparing.

Broder 1997 ("On the resemblance and containment of documents") for the signatures; Leskovec, Rajaraman & Ullman,
"Mining of Massive Datasets", sect. 3.4, for the bands.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.refresh.shingles import HashRows, IntArray, UInt64Array

NUM_BANDS: Final = 20
_BAND_ROWS: Final = 6
"""20 bands of 6 find a pair of similarity 0.8 with a chance of 1 - (1 - 0.8^6)^20 = 0.998, one of 0.5 with 0.27."""
_NUM_HASHES: Final = NUM_BANDS * _BAND_ROWS
_SLACK: Final = 0.12
"""Three standard errors of a similarity of 0.8 that is estimated from 120 minima: what is further below the threshold
is not looked at exactly."""
_BATCH_PAIRS: Final = 200_000

_RNG: Final = np.random.Generator(np.random.PCG64(20_260_101))
_FACTORS: Final = _RNG.integers(2**31, size=_NUM_HASHES, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
_OFFSETS: Final = _RNG.integers(2**32, size=_NUM_HASHES, dtype=np.uint32)
"""Multiply and add modulo 2^32 permutes the shingles' hashes, which are mixed already; one permutation per minimum."""

SignatureArray = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatures:
    """The signatures of those texts that have shingles at all."""

    rows: IntArray
    """Indices of these texts, increasing; shape `(num_signed,)`."""
    minima: SignatureArray
    """Shape `(num_signed, 120)`."""
    bands: UInt64Array
    """One key per band; texts that share one may be alike. Shape `(20, num_signed)`."""


class Pairs(NamedTuple):
    """Texts to compare: positions in `Signatures.rows` of one and of another set; equal shapes."""

    first: IntArray
    second: IntArray


def sign(shingles: HashRows) -> Signatures:
    """Return the signatures of all texts with shingles."""
    rows = np.flatnonzero(shingles.counts)
    minima = np.empty((_NUM_HASHES, len(rows)), dtype=np.uint32)
    if len(rows):
        hashes = (shingles.hashes >> np.uint64(32)).astype(np.uint32)
        starts = shingles.starts[rows]
        for place, (factor, offset) in enumerate(zip(_FACTORS, _OFFSETS, strict=True)):
            minima[place] = np.minimum.reduceat(hashes * factor + offset, starts)
    return Signatures(rows=rows, minima=np.ascontiguousarray(minima.T), bands=_band_keys(minima))


def jaccard(first: UInt64Array, second: UInt64Array) -> float:
    """Return the similarity of two sets of shingles in [0, 1]; repeats do not count."""
    one, other = set(first.tolist()), set(second.tolist())
    return len(one & other) / len(one | other) if one or other else 0.0


def likely_pairs(first: Signatures, second: Signatures, pairs: Pairs, threshold: float) -> Pairs:
    """Return those pairs whose estimated similarity may reach `threshold`, each once, by second then first."""
    merged = np.unique(pairs.second * np.int64(len(first.rows)) + pairs.first)
    unique = Pairs(merged % max(len(first.rows), 1), merged // max(len(first.rows), 1))
    keep = np.zeros(len(merged), dtype=np.bool_)
    for start in range(0, len(merged), _BATCH_PAIRS):
        part = slice(start, start + _BATCH_PAIRS)
        equal = first.minima[unique.first[part]] == second.minima[unique.second[part]]
        keep[part] = equal.mean(axis=1) >= threshold - _SLACK
    return Pairs(unique.first[keep], unique.second[keep])


def _band_keys(minima: SignatureArray) -> UInt64Array:
    keys = np.zeros((NUM_BANDS, minima.shape[1]), dtype=np.uint64)
    for place in range(_NUM_HASHES):
        keys[place // _BAND_ROWS] = keys[place // _BAND_ROWS] * np.uint64(0x9E3779B97F4A7C15) + minima[place]
    return keys
