"""Which problems of a pool occur in training data: as they are, by their n-grams, or nearly the same.

The training data is streamed; what is kept grows with the pool alone. n-gram overlap as for GPT-3 (Brown et al. 2020,
app. C), but by the share of a problem's n-grams, since one phrase of 13 words is often a coincidence.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from infra.datasets.texts import RowText
from schemas.dataset import EvalItem
from schemas.refresh import ContaminationMatch, ContaminationReport, MatchKind
from tasks.refresh.minhash import NUM_BANDS, Pairs, Signatures, jaccard, likely_pairs, sign
from tasks.refresh.near_duplicates import SHINGLE_WORDS, find_boilerplate, without
from tasks.refresh.shingles import (
    BoolArray,
    FloatArray,
    HashRows,
    IntArray,
    UInt64Array,
    Vocabulary,
    hash_runs,
    normalise,
    split_words,
)

_BATCH_TEXTS: Final = 8_192
_MAX_SHOWN: Final = 20
_SHOWN_CHARS: Final = 200
_MAX_BUCKET: Final = 32
"""Problems of one bucket that a training text is compared with: the first ones, which a draw prefers."""
_FILTER_BITS: Final = 26
"""A table of 64 MB sorts out most n-grams before the slower search: 5 million of a large pool fill 7% of it."""
_SOURCE_SHIFT: Final = 40
"""A place in the training data is one number: the source above these bits, the row below."""


class Problem(NamedTuple):
    """An item with what is looked for."""

    item: EvalItem
    text: str
    """Its problem, without instruction and system prompt."""
    form: str
    """The text, normalised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """When a problem counts as seen in training."""

    ngram: int
    """Words of an n-gram."""
    max_overlap: float
    """Share of a problem's n-grams above which it does."""
    near_duplicate: float
    """Jaccard similarity of shingles from which it does."""


class Found(NamedTuple):
    """The result of a search."""

    is_contaminated: BoolArray
    """Shape `(num_problems,)`."""
    report: ContaminationReport


class TrainingSearch:
    """Looks for problems in training data, one source after the other."""

    def __init__(self, problems: Sequence[Problem], words: HashRows, limits: SearchLimits) -> None:
        """Prepare the search.

        Args:
            problems: What is looked for.
            words: The words of each. One without any is found as it is only: problems that a task generates share their
                wording by design.
            limits: When a problem counts as seen.
        """
        self._problems = problems
        self._limits = limits
        self._vocabulary = Vocabulary()
        self._ngrams = _NgramSearch(hash_runs(words, limits.ngram))
        self._similar = _SimilarSearch(hash_runs(words, SHINGLE_WORDS), limits.near_duplicate)
        self._index: defaultdict[str, list[int]] = defaultdict(list)
        for index, one in enumerate(problems):
            self._index[one.form].append(index)
        self._exact: dict[int, int] = {}
        self._sources: list[str] = []
        self._num_rows = 0

    def look_through(self, source: str, texts: Iterable[RowText]) -> None:
        """Search all texts of one source."""
        self._sources.append(source)
        base = (len(self._sources) - 1) << _SOURCE_SHIFT
        last_row = 0
        for batch in _batches(texts):
            forms = [normalise(text) for _, text in batch]
            for (row, _), form in zip(batch, forms, strict=True):
                for index in self._index.get(form, ()):
                    self._exact.setdefault(index, base + row)
            rows = np.array([row for row, _ in batch], dtype=np.int64)
            self._num_rows += int(np.count_nonzero(np.diff(rows, prepend=last_row)))
            last_row = int(rows[-1])
            words = self._vocabulary.hash_words(forms)
            self._ngrams.look_up(hash_runs(words, self._limits.ngram), base + rows)
            self._similar.look_up(hash_runs(words, SHINGLE_WORDS), base + rows)

    def finish(self) -> Found:
        """Return which problems were found, and where."""
        overlaps = self._ngrams.overlaps()
        kinds: dict[int, MatchKind] = dict.fromkeys(self._similar.places, "minhash")
        kinds |= dict.fromkeys(np.flatnonzero(overlaps > self._limits.max_overlap).tolist(), "ngram")
        kinds |= dict.fromkeys(self._exact, "exact")
        is_contaminated = np.zeros(len(self._problems), dtype=np.bool_)
        is_contaminated[list(kinds)] = True
        shown = sorted(kinds, key=lambda index: self._problems[index].item.item_id)[:_MAX_SHOWN]
        counts = {kind: sum(one == kind for one in kinds.values()) for kind in ("exact", "ngram", "minhash")}
        num_checked = len(self._problems) if self._sources else 0
        report = ContaminationReport(
            training_data=tuple(self._sources),
            num_training_rows=self._num_rows,
            num_checked=num_checked,
            num_exact=counts["exact"],
            num_ngram=counts["ngram"],
            num_minhash=counts["minhash"],
            share_removed=len(kinds) / num_checked if num_checked else None,
            matches=tuple(self._match(index, kinds[index], float(overlaps[index])) for index in shown),
        )
        return Found(is_contaminated, report)

    def _match(self, index: int, kind: MatchKind, overlap: float) -> ContaminationMatch:
        problem = self._problems[index]
        text = problem.text
        if kind == "exact":
            overlap, place = 1.0, self._exact[index]
        elif kind == "ngram":
            place = self._ngrams.first_place(index)
            text = self._longest_match(problem.form)
        else:
            place, overlap = self._similar.places[index]
        return ContaminationMatch(
            item_id=problem.item.item_id,
            kind=kind,
            overlap=overlap,
            source=self._sources[place >> _SOURCE_SHIFT],
            row=place & ((1 << _SOURCE_SHIFT) - 1),
            text=text[:_SHOWN_CHARS],
        )

    def _longest_match(self, form: str) -> str:
        """Return the longest run of words of which every n-gram occurs in the training data."""
        words = split_words(form)
        runs = hash_runs(self._vocabulary.hash_words([form]), self._limits.ngram)
        seen = self._ngrams.is_seen(runs.hashes)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], seen, [False]]).astype(np.int8)))
        start, end = max(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True), key=lambda run: run[1] - run[0])
        return " ".join(words[start : end + self._limits.ngram - 1])


class _NgramSearch:
    """How many of each problem's n-grams occur in the training data."""

    def __init__(self, ngrams: HashRows) -> None:
        self._boilerplate = find_boilerplate(ngrams)
        self._rows = without(ngrams, self._boilerplate)
        self._values, self._inverse = np.unique(self._rows.hashes, return_inverse=True)
        self._places = np.full(len(self._values), -1, dtype=np.int64)
        self._filter = np.zeros(1 << _FILTER_BITS, dtype=np.bool_)
        self._filter[_low_bits(self._values)] = True

    def look_up(self, ngrams: HashRows, places: IntArray) -> None:
        """Remember the first place of every n-gram that is a problem's; `places` has one entry per text."""
        if not len(self._values):
            return
        maybe = np.flatnonzero(self._filter[_low_bits(ngrams.hashes)])
        found = np.searchsorted(self._values, ngrams.hashes[maybe]).clip(max=len(self._values) - 1)
        real = self._values[found] == ngrams.hashes[maybe]
        rows = np.searchsorted(ngrams.starts, maybe[real], side="right") - 1
        new = self._places[found[real]] < 0
        # Of several assignments to one entry the last stays: reversed, that is the first place.
        self._places[found[real][new][::-1]] = places[rows[new]][::-1]

    def overlaps(self) -> FloatArray:
        """Return the share of each problem's n-grams that were found, 0 where it has none; shape `(num_problems,)`."""
        counts = self._rows.counts
        found = np.bincount(self._rows.row_of, weights=self._places[self._inverse] >= 0, minlength=len(counts))
        return np.divide(found, counts, out=np.zeros(len(counts)), where=counts > 0)

    def first_place(self, index: int) -> int:
        """Return where the first found n-gram of a problem was found."""
        places = self._places[self._inverse[self._rows.starts[index] : self._rows.starts[index + 1]]]
        return int(places[places >= 0][0])

    def is_seen(self, hashes: UInt64Array) -> BoolArray:
        """Return which n-grams of a problem were found; shape of `hashes`."""
        found = np.searchsorted(self._values, hashes).clip(max=len(self._values) - 1)
        return (self._values[found] == hashes) & (self._places[found] >= 0)


class _SimilarSearch:
    """Which problems are nearly a text of the training data."""

    def __init__(self, shingles: HashRows, threshold: float) -> None:
        self._boilerplate = find_boilerplate(shingles)
        self._shingles = without(shingles, self._boilerplate)
        self._threshold = threshold
        self._signed = sign(self._shingles)
        self._order = np.argsort(self._signed.bands, axis=1, kind="stable")
        self._keys = np.take_along_axis(self._signed.bands, self._order, axis=1)
        self.places: dict[int, tuple[int, float]] = {}
        """By problem: the first place of a text that is nearly the same, and the similarity."""

    def look_up(self, shingles: HashRows, places: IntArray) -> None:
        """Compare texts, whose places are given, with the problems of their buckets."""
        if not len(self._signed.rows):
            return
        shingles = without(shingles, self._boilerplate)
        signed = sign(shingles)
        likely = likely_pairs(self._signed, signed, self._pairs(signed), self._threshold)
        for first, second in zip(likely.first.tolist(), likely.second.tolist(), strict=True):
            problem, text = int(self._signed.rows[first]), int(signed.rows[second])
            if problem not in self.places:
                similarity = jaccard(self._shingles.row(problem), shingles.row(text))
                if similarity >= self._threshold:
                    self.places[problem] = int(places[text]), similarity

    def _pairs(self, signed: Signatures) -> Pairs:
        firsts: list[IntArray] = []
        seconds: list[IntArray] = []
        for band in range(NUM_BANDS):
            keys, wanted = self._keys[band], signed.bands[band]
            left = np.searchsorted(keys, wanted)
            hits = np.flatnonzero(keys[left.clip(max=len(keys) - 1)] == wanted)
            sizes = np.minimum(np.searchsorted(keys, wanted[hits], side="right") - left[hits], _MAX_BUCKET)
            within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            firsts.append(self._order[band][np.repeat(left[hits], sizes) + within])
            seconds.append(np.repeat(hits, sizes))
        return Pairs(np.concatenate(firsts), np.concatenate(seconds))


def _low_bits(hashes: UInt64Array) -> IntArray:
    return (hashes & np.uint64((1 << _FILTER_BITS) - 1)).astype(np.int64)


def _batches(texts: Iterable[RowText]) -> Iterator[list[RowText]]:
    remaining = iter(texts)
    while batch := list(islice(remaining, _BATCH_TEXTS)):
        yield batch
