"""Two samples of texts, tested with permuted labels: as a whole, word by word, and for copies.

Owns how texts become words and the three statistics; must not know what the texts are. All three share one set of
permutations. More than `MAX_TEXTS` of a side are sampled.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from infra.arrays import BoolArray, FloatArray, IntArray
from schemas.drift import Bar
from tasks.drift.two_samples import SEED, Level, centroid_effect, detectable_z, draw_null, permutation_p_value

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_TEXTS: Final = 2_000
"""Texts of a side that are compared: enough for every effect above the default floors to be seen."""

# Scripts written without spaces count by the letter, digits by their number: 16 and 20 are one word, 16 and 1600 two.
_UNSPACED: Final = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD: Final = re.compile(rf"[{_UNSPACED}]|\d+|[^\W\d{_UNSPACED}]+|[^\w\s]")
_DIGITS: Final = str.maketrans("123456789", "000000000")
_NOT_COPIED: Final = re.compile(r"[\W_]+")
_MIN_TEXTS_WITH_WORD: Final = 2
"""A word of one text alone, or of all, says nothing of the difference between two samples."""
_BATCH: Final = 128
_NAMED_WORDS: Final = 5


class TextTest(NamedTuple):
    """The outcome of one statistic."""

    statistic: float
    effect: float
    p_value: float
    smallest_detectable: float | None
    bars: tuple[Bar, ...] = ()


class TextTests(NamedTuple):
    """The three outcomes, and how many texts of each side they rest on."""

    text: TextTest
    """Distance between the centroids of the TF-IDF vectors; 1 is the length of one text's vector."""
    words: TextTest
    """Largest change of the share of texts that have a word or a pair of neighbouring words."""
    copies: TextTest
    """How many more near copies a current text has among the current ones than at the reference's rate."""
    num_reference: int
    num_current: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """Which words and pairs each text has."""

    names: list[str]
    presence: "csr_array"
    """1 where a text has a word, shape `(num_texts, num_words)`."""
    weights: "csr_array"
    """TF-IDF rows of length 1, of the same shape."""


def compare_texts(reference: Sequence[str], current: Sequence[str], level: Level) -> TextTests:
    """Test two samples of texts, each with at least one; their order does not matter."""
    rng = np.random.default_rng(SEED)
    sides = [_sample(texts, rng) for texts in (reference, current)]
    # In an order of their own, so that the same texts meet the same permutations.
    pooled = sorted((text, side) for side, texts in enumerate(sides) for text in texts)
    texts = [text for text, _ in pooled]
    is_current = np.array([side == 1 for _, side in pooled])
    comparison = _Comparison(texts, num_current=len(sides[1]))
    observed = comparison.statistics(is_current[:, None])[:, 0]
    null = draw_null(observed, comparison.permuted(is_current, rng), level, per_step=2)
    p_values = [permutation_p_value(float(value), row) for value, row in zip(observed, null, strict=True)]
    return TextTests(
        text=comparison.describe_text(observed[0], null[0], p_values[0], level),
        words=comparison.describe_words(is_current, observed[1], p_values[1], level),
        copies=comparison.describe_copies(is_current, observed[2], null[2], p_values[2], level),
        num_reference=len(sides[0]),
        num_current=len(sides[1]),
    )


def _sample(texts: Sequence[str], rng: np.random.Generator) -> list[str]:
    ordered = sorted(texts)
    if len(ordered) <= MAX_TEXTS:
        return ordered
    return [ordered[index] for index in np.sort(rng.choice(len(ordered), MAX_TEXTS, replace=False))]


class _Comparison:
    """Pooled texts and the statistics of any labelling of them."""

    def __init__(self, texts: Sequence[str], *, num_current: int) -> None:
        self._num_current = num_current
        self._num_reference = len(texts) - num_current
        self._words = _read_words(texts)
        self._words_transposed = self._words.presence.T.tocsr()
        self._weights_transposed = self._words.weights.T.tocsr()
        self._copies = _group_copies(texts)
        self._texts_with_word = np.asarray(self._words.presence.sum(axis=0), np.float64).ravel()
        share = self._texts_with_word / len(texts)
        # standard deviation of the difference of a word's shares under permuted labels
        self._spread = np.sqrt(share * (1 - share) * (1 / self._num_reference + 1 / num_current))

    def permuted(self, is_current: BoolArray, rng: np.random.Generator) -> Iterator[FloatArray]:
        """Yield the statistics of batches of permuted labels, shape `(3, batch)`."""
        for _ in itertools.count():
            labels = np.repeat(is_current[:, None], _BATCH, axis=1)
            yield self.statistics(rng.permuted(labels, axis=0))

    def statistics(self, is_current: BoolArray) -> FloatArray:
        """Return the three statistics of labellings, shape `(num_texts, num_labellings)`, as `(3, num_labellings)`."""
        contrast = np.where(is_current, 1 / self._num_current, -1 / self._num_reference).astype(np.float32)
        centroids = self._weights_transposed @ contrast
        reference, current = self._word_shares(is_current)
        return np.stack(
            [
                # beyond these digits is the noise of single precision, which would tell equal samples apart
                np.einsum("ij,ij->j", centroids, centroids).astype(np.float64).round(10),
                (np.abs(current - reference) / self._spread[:, None]).max(axis=0, initial=0.0),
                np.abs(self._copy_rates(is_current)),
            ]
        )

    def _word_shares(self, is_current: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return the share of texts with each word, reference and current, shape `(num_words, num_labellings)`."""
        current = (self._words_transposed @ is_current.astype(np.float32)).astype(np.float64)  # whole numbers: exact
        reference = self._texts_with_word[:, None] - current
        return reference / self._num_reference, current / self._num_current

    def _copy_rates(self, is_current: BoolArray) -> FloatArray:
        """Chance that two current texts are copies, less that of two reference texts."""
        labels = is_current.astype(np.float64)
        current = self._copies @ labels
        reference = self._copies @ (1 - labels)
        return _pair_rate(current, self._num_current) - _pair_rate(reference, self._num_reference)

    def describe_text(self, observed: float, null: FloatArray, p_value: float, level: Level) -> TextTest:
        effect, smallest = centroid_effect(observed, null, level)
        return TextTest(statistic=float(observed), effect=effect, p_value=p_value, smallest_detectable=smallest)

    def describe_words(self, is_current: BoolArray, observed: float, p_value: float, level: Level) -> TextTest:
        names = self._words.names
        if not names:
            return TextTest(0.0, 0.0, 1.0, None)
        reference, current = (shares[:, 0] for shares in self._word_shares(is_current[:, None]))
        scores = np.abs(current - reference) / self._spread
        first = np.argsort(-scores, kind="stable")[:_NAMED_WORDS].tolist()
        per_row = detectable_z(level.strict / (2 * len(names))) ** 2 * (1 / self._num_reference + 1 / self._num_current)
        return TextTest(
            statistic=float(observed),
            effect=float(np.abs(current - reference)[first[0]]),
            p_value=p_value,
            # a word that no reference text has, from share^2 = z^2 * (1/n + 1/m) * share/2 * (1 - share/2)
            smallest_detectable=min(2 * per_row / (4 + per_row), 1.0),
            bars=tuple(
                Bar(label=names[word], reference=float(reference[word]), current=float(current[word]))
                for word in first
                if scores[word] > 0
            ),
        )

    def describe_copies(
        self, is_current: BoolArray, observed: float, null: FloatArray, p_value: float, level: Level
    ) -> TextTest:
        per_row = float(observed) * (self._num_current - 1)
        needed = detectable_z(level.strict / 2)
        spread = float(np.sqrt((null**2).mean())) * (self._num_current - 1)
        return TextTest(
            statistic=float(observed),
            effect=per_row,
            p_value=p_value,
            smallest_detectable=needed * spread if spread > 0 else None,
            bars=(
                Bar(
                    label="has a near copy in the other rows",
                    reference=self._share_copied(~is_current, self._num_reference),
                    current=self._share_copied(is_current, self._num_current),
                ),
            ),
        )

    def _share_copied(self, is_member: BoolArray, num_members: int) -> float:
        sizes = self._copies @ is_member.astype(np.float64)
        return float(sizes[sizes > 1].sum()) / num_members


def _pair_rate(group_sizes: FloatArray, num_texts: int) -> FloatArray:
    return (group_sizes * (group_sizes - 1)).sum(axis=0) / max(num_texts * (num_texts - 1), 1)


def _group_copies(texts: Sequence[str]) -> "csr_array":
    """Return which texts are near copies of each other: equal but for case, spacing, punctuation and digits."""
    from scipy.sparse import csr_array

    keys = [_NOT_COPIED.sub("", text.translate(_DIGITS).casefold()) for text in texts]
    sizes = Counter(keys)
    number = {key: index for index, key in enumerate(key for key in sizes if sizes[key] > 1)}
    members = [(number[key], row) for row, key in enumerate(keys) if key in number]
    groups, rows = (np.array([member[axis] for member in members], np.int64) for axis in (0, 1))
    return csr_array((np.ones(len(members)), (groups, rows)), shape=(len(number), len(texts)))


def _read_words(texts: Sequence[str]) -> _Words:
    """Return words and pairs of neighbours that two texts have or more, but not all."""
    from scipy.sparse import csr_array

    known: dict[str, int] = {}
    rows = [[known.setdefault(word, len(known)) for word in _WORD.findall(text.translate(_DIGITS))] for text in texts]
    names = list(known)
    lengths = np.array([len(row) for row in rows], np.int64)
    words: IntArray = np.fromiter(itertools.chain.from_iterable(rows), np.int64, int(lengths.sum()))
    text_of = np.repeat(np.arange(len(texts)), lengths)
    is_pair = text_of[1:] == text_of[:-1]
    # a pair is the number of its first word, shifted, and of its second
    pairs = (words[:-1][is_pair] + 1) * len(names) + words[1:][is_pair]
    terms = np.concatenate([words, pairs])
    kinds, term_of = np.unique(terms, return_inverse=True)
    cells = np.unique(np.concatenate([text_of, text_of[1:][is_pair]]) * len(kinds) + term_of)
    num_texts_with = np.bincount(cells % max(len(kinds), 1), minlength=len(kinds))
    kept = np.flatnonzero((num_texts_with >= _MIN_TEXTS_WITH_WORD) & (num_texts_with < len(texts)))
    ones = np.ones(len(cells), np.float32)
    shape = (len(texts), len(kinds))
    presence = csr_array((ones, np.divmod(cells, max(len(kinds), 1))), shape=shape)[:, kept]
    idf = np.log((1 + len(texts)) / (1 + num_texts_with[kept])) + 1
    weights = presence.multiply(idf[None, :].astype(np.float32)).tocsr()
    norms = np.sqrt(np.asarray(weights.power(2).sum(axis=1))).ravel()
    weights.data /= np.repeat(norms, np.diff(weights.indptr))
    return _Words(
        names=[_name(int(kind), names) for kind in kinds[kept]],
        presence=presence.tocsr(),
        weights=weights,
    )


def _name(kind: int, names: Sequence[str]) -> str:
    first, second = divmod(kind, len(names))
    return names[kind] if first == 0 else f"{names[first - 1]} {names[second]}"
