"""Which texts are nearly the same, without comparing each with each.

MinHash signatures in bands (Broder 1997, "On the resemblance and containment of documents"; Leskovec, Rajaraman &
Ullman, "Mining of Massive Datasets", sect. 3.4), both by `rensa`, name texts that may be alike; these are compared
exactly.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, Protocol, Self

import numpy as np
from rensa import RMinHash, RMinHashLSH  # pyright: ignore[reportAttributeAccessIssue]  # compiled, without stubs

from infra.arrays import BoolArray, UInt64Array
from tasks.refresh.shingles import HashRows, find_boilerplate, hash_runs, without

_SHINGLE_WORDS: Final = 3
_NUM_BANDS: Final = 15
_NUM_HASHES: Final = _NUM_BANDS * 5
"""15 bands of 5 find a pair of similarity 0.8 with a chance of 1 - (1 - 0.8^5)^15 = 0.997, one of 0.5 with 0.38."""
_SEED: Final = 20_260_101
_SLACK: Final = 0.14
"""Three standard errors of a similarity of 0.8 that is estimated from 75 minima: what is further below the threshold
is not looked at exactly."""
_MAX_CANDIDATES: Final = 1_000
"""How many texts one is compared with: however alike all are, the time grows with their number alone."""
_BATCH_TEXTS: Final = 4_096


class _Signature(Protocol):
    """rensa's RMinHash."""

    def jaccard(self, other: Self) -> float:
        """Return the estimated similarity."""
        ...


class Similar(NamedTuple):
    """A text, and one of the index that is nearly the same."""

    text: int
    indexed: int
    similarity: float
    """Jaccard similarity of their shingles."""


class NearDuplicates:
    """An index of texts that finds those which are nearly another text."""

    def __init__(self, words: HashRows, threshold: float) -> None:
        """Index texts by their words, for similarities of `threshold` and more; one without words is like none."""
        shingles = hash_runs(words, _SHINGLE_WORDS)
        self._boilerplate = find_boilerplate(shingles)
        self._shingles = without(shingles, self._boilerplate)
        self._threshold = threshold
        self._signatures = dict(_sign(self._shingles))
        self._bands = RMinHashLSH(threshold, _NUM_HASHES, _NUM_BANDS)
        self._bands.insert_pairs(self._signatures.items())

    def search(self, words: HashRows) -> Iterator[Similar]:
        """Yield which other texts, given by their words, are nearly which of the index."""
        shingles = without(hash_runs(words, _SHINGLE_WORDS), self._boilerplate)
        for text, signature in _sign(shingles):
            for indexed in self._likely(signature):
                similarity = jaccard(self._shingles.row(indexed), shingles.row(text))
                if similarity >= self._threshold:
                    yield Similar(text, indexed, similarity)

    def find_repeats(self, order: Iterable[int], *, beside: Iterable[int] = ()) -> BoolArray:
        """Return which of some texts of the index are nearly one of `beside` or an earlier one that is no repeat;
        shape of `order`."""
        kept = set(beside)
        return np.array([self._is_repeat(text, kept) for text in order], dtype=np.bool_)

    def _is_repeat(self, text: int, kept: set[int]) -> bool:
        """Whether a text is nearly one of those kept, which it joins if not."""
        shingles = self._shingles.row(text)
        if len(shingles) and any(
            other in kept and jaccard(self._shingles.row(other), shingles) >= self._threshold
            for other in self._likely(self._signatures[text])
        ):
            return True
        kept.add(text)
        return False

    def _likely(self, signature: _Signature) -> Iterator[int]:
        """Yield texts of the index whose estimated similarity may reach the threshold."""
        for text in islice(self._bands.query(signature), _MAX_CANDIDATES):
            if signature.jaccard(self._signatures[text]) >= self._threshold - _SLACK:
                yield text


def jaccard(first: UInt64Array, second: UInt64Array) -> float:
    """Return the similarity of two sets of shingles in [0, 1]; repeats do not count."""
    one, other = set(first.tolist()), set(second.tolist())
    return len(one & other) / len(one | other) if one or other else 0.0


def _sign(shingles: HashRows) -> Iterator[tuple[int, _Signature]]:
    """Yield the index and the signature of every text with shingles."""
    rows = np.flatnonzero(shingles.counts).tolist()
    for start in range(0, len(rows), _BATCH_TEXTS):
        batch = rows[start : start + _BATCH_TEXTS]
        tokens = [shingles.row(row).view("S8").tolist() for row in batch]
        yield from zip(batch, RMinHash.from_token_sets(tokens, _NUM_HASHES, _SEED), strict=True)
