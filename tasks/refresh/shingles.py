"""Texts as hashed runs of words: what overlaps and similarities are computed from.

Arrays throughout: a hundred thousand texts are six million runs. Hashes are functions of the text alone, the same in
every process.
"""

import hashlib
import re
import unicodedata
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.arrays import BoolArray, IntArray, UInt64Array

_WORD: Final = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"  # scripts without spaces: each character is a word
    r"|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
    r"|[^\w\s.,;:!?\"'\u2018\u2019\u201c\u201d]"  # signs of mathematics count, punctuation does not
)
_BASE: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = np.uint64(0xFF51AFD7ED558CCD)
_BOILERPLATE_ROWS: Final = 20
_BOILERPLATE_SHARE: Final = 0.01
_BATCH_TEXTS: Final = 4_096
_MAX_PIECES: Final = 2**20
"""Distinct pieces of text that are remembered, some 200 MB of them; numbers make their count endless."""


def normalise(text: str) -> str:
    """Return the form in which two texts are the same problem: compatible characters unified, case and spacing gone."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def split_words(form: str) -> list[str]:
    """Return the words of a normalised text and its mathematical signs."""
    return _WORD.findall(form)


@dataclass(frozen=True, slots=True, kw_only=True)
class HashRows:
    """Hashes of several texts, one text after the other."""

    hashes: UInt64Array
    """Shape `(num_hashes,)`."""
    starts: IntArray
    """Where each text's hashes begin, and their end; shape `(num_texts + 1,)`."""

    @property
    def counts(self) -> IntArray:
        """Hashes per text, shape `(num_texts,)`."""
        return np.diff(self.starts)

    @property
    def row_of(self) -> IntArray:
        """The text of each hash, shape `(num_hashes,)`."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)

    def row(self, index: int) -> UInt64Array:
        """Return the hashes of one text."""
        return self.hashes[self.starts[index] : self.starts[index + 1]]

    def keep(self, mask: BoolArray) -> "HashRows":
        """Return the hashes where `mask`, shape `(num_hashes,)`, is true; no text goes, though it may be left empty."""
        kept = np.concatenate([[0], np.cumsum(mask)])
        return HashRows(hashes=self.hashes[mask], starts=kept[self.starts])

    def take(self, rows: IntArray) -> "HashRows":
        """Return some texts, in the order of their indices `rows`."""
        starts = _starts(self.counts[rows])
        places = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], np.diff(starts))
        return HashRows(hashes=self.hashes[places], starts=starts)


class Vocabulary(dict[str, int]):
    """The hashes of the words in each piece of text between blanks, computed once: most pieces come again.

    A dictionary from each piece to its place.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        super().__init__()
        self._hashes = array("Q")
        self._starts = array("q", [0])

    def hash_words(self, forms: Sequence[str]) -> HashRows:
        """Return the 64-bit hash of every word of every normalised text, as `split_words` parts them."""
        batches = [
            self._hash_batch(forms[start : start + _BATCH_TEXTS]) for start in range(0, len(forms), _BATCH_TEXTS)
        ]
        return HashRows(
            hashes=np.concatenate([np.zeros(0, dtype=np.uint64), *(batch.hashes for batch in batches)]),
            starts=_starts(np.concatenate([np.zeros(0, dtype=np.int64), *(batch.counts for batch in batches)])),
        )

    def _hash_batch(self, forms: Sequence[str]) -> HashRows:
        if len(self) > _MAX_PIECES:
            self.clear()
            del self._hashes[:], self._starts[1:]
        pieces = pc.split_pattern(pa.array(forms, pa.large_string()), " ")
        distinct = pieces.flatten().dictionary_encode()
        places = np.array([self[str(piece)] for piece in distinct.dictionary.to_pylist()], dtype=np.int64)
        known = HashRows(hashes=np.array(self._hashes, dtype=np.uint64), starts=np.array(self._starts, dtype=np.int64))
        by_piece = known.take(places[distinct.indices.to_numpy()])
        return HashRows(hashes=by_piece.hashes, starts=by_piece.starts[pieces.offsets.to_numpy()])

    def __missing__(self, piece: str) -> int:
        """Give a new piece its place."""
        self[piece] = place = len(self)
        self._hashes.extend(map(_hash_word, split_words(piece)))
        self._starts.append(len(self._hashes))
        return place


def hash_runs(rows: HashRows, length: int) -> HashRows:
    """Return the hash of every run of `length` words; a shorter text is one run of all its words, an empty one none."""
    padded = _pad(rows, length)
    counts = np.maximum(padded.counts - length + 1, 0)
    num_windows = max(len(padded.hashes) - length + 1, 0)
    windows = np.zeros(num_windows, dtype=np.uint64)
    for place in range(length):
        windows = windows * _BASE + padded.hashes[place : place + num_windows]
    windows = (windows ^ (windows >> np.uint64(32))) * _MIX  # every bit of a run's hash depends on all its words
    starts = _starts(counts)
    places = np.arange(starts[-1]) + np.repeat(padded.starts[:-1] - starts[:-1], counts)
    return HashRows(hashes=windows[places], starts=starts)


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


def _pad(rows: HashRows, length: int) -> HashRows:
    """Return the rows with zeros after each text that has words, but fewer than `length`."""
    counts = rows.counts
    if not ((counts > 0) & (counts < length)).any():
        return rows
    starts = _starts(np.where(counts == 0, 0, np.maximum(counts, length)))
    hashes = np.zeros(starts[-1], dtype=np.uint64)
    hashes[np.arange(rows.starts[-1]) + np.repeat(starts[:-1] - rows.starts[:-1], counts)] = rows.hashes
    return HashRows(hashes=hashes, starts=starts)


def _starts(counts: IntArray) -> IntArray:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])


def _hash_word(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
