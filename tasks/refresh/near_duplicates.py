"""Which texts of a set are nearly another one of it."""

from typing import Final

import numpy as np

from tasks.refresh.minhash import NUM_BANDS, Pairs, Signatures, jaccard, likely_pairs, sign
from tasks.refresh.shingles import BoolArray, HashRows, UInt64Array

SHINGLE_WORDS: Final = 3
_BOILERPLATE_ROWS: Final = 20
_BOILERPLATE_SHARE: Final = 0.01


def find_boilerplate(runs: HashRows) -> UInt64Array:
    """Return the sorted hashes that occur in more than 1% of the texts (and more than 20 times): wording that a source
    puts around its problems says nothing of which problem it is."""
    values, counts = np.unique(runs.hashes, return_counts=True)
    limit = max(_BOILERPLATE_ROWS, _BOILERPLATE_SHARE * (len(runs.starts) - 1))
    return values[counts > limit]


def without(runs: HashRows, boilerplate: UInt64Array) -> HashRows:
    """Return the runs whose hashes are not among the sorted ones of `boilerplate`."""
    if not len(boilerplate):
        return runs
    places = np.searchsorted(boilerplate, runs.hashes).clip(max=len(boilerplate) - 1)
    return runs.keep(boilerplate[places] != runs.hashes)


def find_near_duplicates(shingles: HashRows, *, threshold: float) -> BoolArray:
    """Return which texts have a similarity of `threshold` or more with an earlier one; shape `(num_texts,)`.

    Within a band a text is compared with the earliest of its bucket alone: linear in the texts, however alike they are.
    """
    found = np.zeros(len(shingles.starts) - 1, dtype=np.bool_)
    signed = sign(shingles)
    likely = likely_pairs(signed, signed, _pairs_with_earliest(signed), threshold)
    for first, second in zip(likely.first.tolist(), likely.second.tolist(), strict=True):
        row, earlier = int(signed.rows[second]), int(signed.rows[first])
        if not found[row] and jaccard(shingles.row(earlier), shingles.row(row)) >= threshold:
            found[row] = True
    return found


def _pairs_with_earliest(signed: Signatures) -> Pairs:
    firsts, seconds = [], []
    for band in range(NUM_BANDS):
        order = np.argsort(signed.bands[band], kind="stable")
        keys = signed.bands[band][order]
        opens = np.concatenate([np.ones(min(len(keys), 1), dtype=np.bool_), keys[1:] != keys[:-1]])
        earliest = order[np.maximum.accumulate(np.where(opens, np.arange(len(keys)), 0))]
        firsts.append(earliest[~opens])
        seconds.append(order[~opens])
    return Pairs(np.concatenate(firsts), np.concatenate(seconds))
