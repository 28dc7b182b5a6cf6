"""Two samples of numbers or of categories: is the difference real, how large is it, what could have been seen.

Owns the tests and the distances; pure functions of numbers, no tables and no names of features. docs/drift.md states
each rule with its source.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from infra.arrays import BoolArray, FloatArray, IntArray
from tasks.metrics.estimators import POWER

SEED: Final = 20_131
"""Seed of every label permutation: the same rows give the same p-values."""

_KS_EFFICIENCY: Final = 2 / math.pi
"""Efficiency of the Kolmogorov-Smirnov test for a shift, relative to the t-test on normal data; a usual lower bound."""
_NUM_BINS: Final = 10
"""Deciles of the reference: the bins of the industry's PSI."""
_SMOOTHING: Final = 0.5
"""Rows added to each bin, so that an empty one makes PSI and KL large and not infinite."""
_BATCH_CELLS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How sure a test has to be."""

    alpha: float
    """Chance of a false alarm over all features together."""
    num_features: int
    """Features tested together."""

    @property
    def strict(self) -> float:
        """The level of Holm's first step, which the smallest p-value must reach."""
        return self.alpha / self.num_features


class Tested(NamedTuple):
    """A test's outcome."""

    statistic: float
    """Value of the test statistic."""
    p_value: float
    """Chance of such a value without drift."""


class Distances(NamedTuple):
    """Differences of two histograms, for information."""

    psi: float
    """Population stability index."""
    jensen_shannon: float
    """Jensen-Shannon distance, base 2, in [0, 1]."""
    kl: float
    """Kullback-Leibler divergence of the current rows from the reference, nats."""


def holm(p_values: Sequence[float], alpha: float) -> list[bool]:
    """Return which hypotheses fall at family-wise level `alpha` (Holm 1979, step-down)."""
    rejected = [False] * len(p_values)
    for step, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        if p_values[index] > alpha / (len(p_values) - step):
            break
        rejected[index] = True
    return rejected


def kolmogorov_smirnov(reference: FloatArray, current: FloatArray) -> Tested:
    """Test two samples of numbers, shapes `(n,)` and `(m,)`; the asymptotic p-value errs to the safe side with ties."""
    from scipy.special import kolmogorov

    first, second, _ = _distribution_functions(reference, current)
    statistic = float(np.abs(first - second).max())
    scale = math.sqrt(len(reference) * len(current) / (len(reference) + len(current)))
    return Tested(statistic, float(kolmogorov(scale * statistic)))


def standardised_wasserstein(reference: FloatArray, current: FloatArray) -> float:
    """Return how far values moved on average, in standard deviations of the reference.

    A constant reference has none; the deviation of both samples together stands in.
    """
    first, second, values = _distribution_functions(reference, current)
    moved = float((np.abs(first - second)[:-1] * np.diff(values)).sum())
    deviation = float(reference.std()) or float(np.concatenate([reference, current]).std())
    return moved / deviation if deviation > 0 else 0.0


def detectable_z(tail: float) -> float:
    """Return the standard errors that an effect must have for a test with `tail` false alarms on its side to see it.

    To see it with POWER, in the normal approximation.
    """
    return NormalDist().inv_cdf(1 - tail) + NormalDist().inv_cdf(POWER)


def smallest_shift(num_reference: int, num_current: int, strict_alpha: float) -> float:
    """Return the shift of a normal variable, in standard deviations, that the test sees with power 0.8."""
    return detectable_z(strict_alpha / 2) * math.sqrt(_harmonic(num_reference, num_current) / _KS_EFFICIENCY)


def _harmonic(num_reference: int, num_current: int) -> float:
    return 1 / num_reference + 1 / num_current


def _distribution_functions(reference: FloatArray, current: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    values = np.unique(np.concatenate([reference, current]))
    first, second = (
        np.searchsorted(np.sort(sample), values, side="right") / len(sample) for sample in (reference, current)
    )
    return first, second, values


def decile_counts(reference: FloatArray, current: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the rows of each sample in the deciles of the reference; equal deciles are one bin."""
    edges = np.unique(np.quantile(reference, np.arange(1, _NUM_BINS) / _NUM_BINS))
    first, second = (
        np.bincount(np.searchsorted(edges, sample, side="left"), minlength=len(edges) + 1)
        for sample in (reference, current)
    )
    return first, second


def distances(reference: IntArray, current: IntArray) -> Distances:
    """Return PSI, Jensen-Shannon distance and KL divergence of two histograms over the same bins."""
    first, second = ((counts + _SMOOTHING) / (counts + _SMOOTHING).sum() for counts in (reference, current))
    log_ratio = np.log(second / first)
    raw_first, raw_second = reference / reference.sum(), current / current.sum()
    middle = (raw_first + raw_second) / 2
    divergence = (_relative_entropy(raw_first, middle) + _relative_entropy(raw_second, middle)) / (2 * math.log(2))
    return Distances(
        psi=float(((second - first) * log_ratio).sum()),
        jensen_shannon=math.sqrt(min(max(divergence, 0.0), 1.0)),
        kl=max(float((second * log_ratio).sum()), 0.0),
    )


def _relative_entropy(share: FloatArray, of: FloatArray) -> float:
    present = share > 0
    return float((share[present] * np.log(share[present] / of[present])).sum())


def total_variation(reference: IntArray, current: IntArray) -> float:
    """Return the share of rows that would have to change category to make two histograms equal, in [0, 1]."""
    return float(np.abs(reference / reference.sum() - current / current.sum()).sum() / 2)


def permuted_chi_square(reference: IntArray, current: IntArray, level: Level) -> Tested:
    """Test two histograms by chi-square with permuted labels, which holds for any expected counts.

    Args:
        reference: rows per category, shape `(num_categories,)`.
        current: the same.
        level: decides how many permutations are drawn.
    """
    totals = reference + current
    expected = totals * (current.sum() / totals.sum())
    scale = totals.sum() / reference.sum()

    def statistic(counts: IntArray) -> FloatArray:
        return ((counts - expected) ** 2 / expected).sum(axis=-1) * scale

    observed = float(statistic(current))
    rng = np.random.default_rng(SEED)
    step = max(1, min(1_024, _BATCH_CELLS // len(totals)))
    drawn = (
        statistic(rng.multivariate_hypergeometric(totals, int(current.sum()), size=step, method="marginals"))[None, :]
        for _ in itertools.count()
    )
    null = draw_null(np.array([observed]), drawn, level, per_step=10)
    return Tested(observed, permutation_p_value(observed, null[0]))


def draw_null(observed: FloatArray, drawn: Iterator[FloatArray], level: Level, *, per_step: int) -> FloatArray:
    """Return statistics under permuted labels, shape `(num_statistics, num_drawn)`.

    Drawing ends early once no further draw could make one of the statistics significant (Besag & Clifford 1991): most
    samples without drift end after a batch or two.

    Args:
        observed: the statistics of the true labels, shape `(num_statistics,)`.
        drawn: batches of permuted ones, shape `(num_statistics, size of the batch)`.
        level: decides how many are wanted.
        per_step: how many times smaller than the strict level a p-value can be.
    """
    wanted = math.ceil(per_step / level.strict) - 1
    batches: list[FloatArray] = []
    num_drawn = 0
    num_reached = np.zeros(len(observed), np.int64)
    while num_drawn < wanted and bool((num_reached + 1 <= level.alpha * (wanted + 1)).any()):
        batch = next(drawn)
        batches.append(batch)
        num_drawn += batch.shape[1]
        num_reached += _reaches(batch, observed[:, None]).sum(axis=1)
    return np.concatenate(batches, axis=1)


def centroid_effect(observed: float, null: FloatArray, level: Level) -> tuple[float, float]:
    """Return how far two centroids are apart, and the smallest distance that is seen with power 0.8.

    Args:
        observed: the squared distance; its expectation under permuted labels is taken off, and what is left estimates
            that of the populations.
        null: squared distances under permuted labels.
        level: how sure the test has to be.
    """
    smallest = math.sqrt(detectable_z(level.strict) * float(null.std()))
    return math.sqrt(max(float(observed - null.mean()), 0.0)), smallest


def permutation_p_value(observed: float, null: FloatArray) -> float:
    """Return (b + 1) / (m + 1), which never understates (Phipson & Smyth 2010)."""
    return (int(_reaches(null, observed).sum()) + 1) / (len(null) + 1)


def _reaches(null: FloatArray, observed: float | FloatArray) -> BoolArray:
    # Sums in another order, some in single precision, differ in the last digits: equal statistics count as reached.
    return null >= np.multiply(observed, 1 - 1e-6)


def unseen_p_value(reference: IntArray, current: IntArray) -> float:
    """Return the exact chance that some category is absent from the reference by luck alone; 1 when none is.

    Hypergeometric: all k rows of a category are among the m current ones of n + m. Bonferroni over the categories.
    """
    from scipy.special import gammaln

    num_current = int(current.sum())
    num_rows = num_current + int(reference.sum())
    rows = current[reference == 0].astype(np.float64)
    if not len(rows):
        return 1.0
    chance = gammaln(num_current + 1) - gammaln(num_current - rows + 1)
    chance -= gammaln(num_rows + 1) - gammaln(num_rows - rows + 1)
    return min(1.0, len(current) * math.exp(float(chance.min())))


def smallest_move(reference: IntArray, current: IntArray, strict_alpha: float) -> float | None:
    """Return the share of rows, moved evenly, that the chi-square test sees with power 0.8; None for one category.

    From the noncentral chi-square distribution; a change of total variation t over even categories is Cohen's w = 2t.
    """
    from scipy.special import chdtri, chndtrinc

    freedom = len(reference) - 1
    if freedom < 1:
        return None
    noncentrality = float(chndtrinc(chdtri(freedom, strict_alpha), freedom, 1 - POWER))
    return min(math.sqrt(noncentrality * _harmonic(int(reference.sum()), int(current.sum()))) / 2, 1.0)
