"""Which problems of a pool occur in training data: as they are, by their n-grams, or nearly the same.

The training data is streamed; what is kept grows with the pool alone. n-gram overlap as for GPT-3 (Brown et al. 2020,
app. C), but by the share of a problem's n-grams, since one phrase of 13 words is often a coincidence.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from infra.arrays import BoolArray, FloatArray, IntArray, UInt64Array
from infra.datasets.texts import RowText
from schemas.dataset import EvalItem
from schemas.refresh import ContaminationMatch, ContaminationReport, MatchKind
from tasks.refresh.near_duplicates import NearDuplicates
from tasks.refresh.shingles import HashRows, Vocabulary, find_boilerplate, hash_runs, normalise, split_words, without

_BATCH_TEXTS: Final = 4_096
_MAX_SHOWN: Final = 20
_SHOWN_CHARS: Final = 200
_FILTER_BITS: Final = 25
"""A table of 32 MB sorts out most n-grams before the slower search: 4 million of a large pool fill 11% of it."""
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


class Found(NamedTuple):
    """The result of a search."""

    is_contaminated: BoolArray
    """Shape `(num_problems,)`."""
    report: ContaminationReport


class TrainingSearch:
    """Looks for problems in training data, one source after the other."""

    def __init__(
        self, problems: Sequence[Problem], words: HashRows, similar: NearDuplicates, limits: SearchLimits
    ) -> None:
        """Prepare the search.

        Args:
            problems: What is looked for.
            words: The words of each. One without any is found as it is only: problems that a task generates share their
                wording by design.
            similar: The index of these words: a problem that is nearly a text of the training data counts as seen.
            limits: When a problem counts as seen.
        """
        self._problems = problems
        self._limits = limits
        self._vocabulary = Vocabulary()
        self._ngrams = _NgramSearch(words, limits.ngram)
        self._similar = similar
        self._forms = {one.form for one in problems}
        self._exact: dict[str, int] = {}
        """By normalised text: the first place where it is found."""
        self._near: dict[int, tuple[int, float]] = {}
        """By problem: the first place of a text that is nearly the same, and the similarity."""
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
                if form in self._forms:
                    self._exact.setdefault(form, base + row)
            rows = np.array([row for row, _ in batch], dtype=np.int64)
            self._num_rows += int(np.count_nonzero(np.diff(rows, prepend=last_row)))
            last_row = int(rows[-1])
            words = self._vocabulary.hash_words(forms)
            self._ngrams.look_up(hash_runs(words, self._limits.ngram), base + rows)
            for text, index, similarity in self._similar.search(words):
                self._near.setdefault(index, (base + batch[text].row, similarity))

    def finish(self) -> Found:
        """Return which problems were found, and where."""
        overlaps = self._ngrams.overlaps()
        kinds: dict[int, MatchKind] = dict.fromkeys(self._near, "minhash")
        kinds |= dict.fromkeys(np.flatnonzero(overlaps > self._limits.max_overlap).tolist(), "ngram")
        kinds |= {index: "exact" for index, one in enumerate(self._problems) if one.form in self._exact}
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
            overlap, place = 1.0, self._exact[problem.form]
        elif kind == "ngram":
            place = self._ngrams.first_place(index)
            text = self._longest_match(problem.form)
        else:
            place, overlap = self._near[index]
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

    def __init__(self, words: HashRows, length: int) -> None:
        self._words = words
        self._length = length
        ngrams = hash_runs(words, length)
        self._boilerplate = find_boilerplate(ngrams)
        # with counts NumPy sorts; without, it fills a hash table of several times the memory
        self._values, _ = np.unique(without(ngrams, self._boilerplate).hashes, return_counts=True)
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
        shares = np.zeros(len(self._words.counts))
        for start in range(0, len(shares), _BATCH_TEXTS):
            part = np.arange(start, min(start + _BATCH_TEXTS, len(shares)))
            ngrams = self._ngrams_of(part)
            found = ngrams.keep(self.is_seen(ngrams.hashes)).counts
            np.divide(found, ngrams.counts, out=shares[part[0] : part[-1] + 1], where=ngrams.counts > 0)
        return shares

    def first_place(self, index: int) -> int:
        """Return where the first found n-gram of a problem was found."""
        ngrams = self._ngrams_of(np.array([index])).hashes
        [first] = ngrams[self.is_seen(ngrams)][:1]
        return int(self._places[np.searchsorted(self._values, first)])

    def _ngrams_of(self, problems: IntArray) -> HashRows:
        """Return the n-grams of some problems: made again, for all of a large pool they are too many to keep."""
        return without(hash_runs(self._words.take(problems), self._length), self._boilerplate)

    def is_seen(self, hashes: UInt64Array) -> BoolArray:
        """Return which n-grams of a problem were found; shape of `hashes`."""
        seen = self._values[self._places >= 0]
        if not len(seen):
            return np.zeros(len(hashes), dtype=np.bool_)
        return seen[np.searchsorted(seen, hashes).clip(max=len(seen) - 1)] == hashes


def _low_bits(hashes: UInt64Array) -> IntArray:
    return (hashes & np.uint64((1 << _FILTER_BITS) - 1)).view(np.int64)


def _batches(texts: Iterable[RowText]) -> Iterator[list[RowText]]:
    remaining = iter(texts)
    while batch := list(islice(remaining, _BATCH_TEXTS)):
        yield batch
