"""The estimators behind every metric: pure functions of numbers, on numpy alone.

Owns the formulas; must not know tables, subsets or metric names. Undefined is None (scalar functions) or NaN (arrays),
never 0. docs/metrics.md states each formula with its source.
"""

from collections.abc import Hashable, Sequence
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from infra.arrays import FloatArray, IntArray
from schemas.errors import ConfigError, DistributedEvaluationError

CONFIDENCE: Final = 0.95
"""Level of every interval in the metrics table."""
POWER: Final = 0.8
"""Chance with which the smallest detectable effect is seen; the convention of trial design."""


class Interval(NamedTuple):
    """A two-sided confidence interval."""

    low: float
    high: float


class ClusteredMeans(NamedTuple):
    """Means of several groups with their errors, each array of shape `(num_groups,)`; NaN where undefined."""

    value: FloatArray
    stderr: FloatArray
    """Cluster-robust; exactly 0 where all clusters share one mean."""
    num_clusters: IntArray
    """Clusters with at least one observation."""
    num_observations: FloatArray


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float | None:
    """Return the unbiased estimate in [0, 1] that at least one of k samples is correct; None when num_samples < k.

    1 - C(n - c, k) / C(n, k) as a product of k ratios, which neither overflows nor cancels (Chen et al. 2021,
    "Evaluating Large Language Models Trained on Code", eq. 1).

    Raises:
        ConfigError: k < 1.
        DistributedEvaluationError: num_correct outside [0, num_samples].
    """
    if not 0 <= num_correct <= num_samples:
        raise DistributedEvaluationError(f"num_correct must be in [0, {num_samples}], got {num_correct}")
    value = float(pass_at_k_per_item(np.array([num_samples]), np.array([num_correct]), k)[0])
    return None if np.isnan(value) else value


def pass_at_k_per_item(num_samples: IntArray, num_correct: IntArray, k: int) -> FloatArray:
    """Return `pass_at_k` for arrays of shape `(num_items,)`; NaN where num_samples < k.

    Raises:
        ConfigError: k < 1.
    """
    if k < 1:
        raise ConfigError(f"k of pass@k must be at least 1, got {k}")
    defined = num_samples >= k
    total = np.where(defined, num_samples, k).astype(np.float64)
    wrong = np.where(defined, num_samples - num_correct, k).astype(np.float64)
    none_correct = np.ones(len(total))
    for drawn in range(min(k, int(total.max(initial=0)))):
        none_correct *= np.maximum(wrong - drawn, 0) / (total - drawn)
    return np.where(defined, 1 - none_correct, np.nan)


def clustered_stderr(scores: Sequence[float | None], clusters: Sequence[Hashable]) -> float | None:
    """Return the standard error of the mean score when scores of one cluster (one item) depend on each other.

    sqrt(G / (G - 1) * sum_g (sum_{i in g} (s_i - mean))^2) / n over G clusters and n scores: Miller 2024, "Adding Error
    Bars to Evals", eq. 4, with the small-sample factor G / (G - 1) (CR1 of Cameron & Miller 2015, sect. VI.B). With one
    score per cluster it is the usual sd / sqrt(n). Missing scores (None, NaN) are left out.

    None with fewer than two clusters: nothing is known of the spread between items. 0 only when two or more clusters
    were seen and all have the same mean: that is what was observed, not proof that there is no error, so `aggregate`
    publishes no standard error then, and an interval that does not rest on it.

    Raises:
        DistributedEvaluationError: the two sequences differ in length.
    """
    if len(scores) != len(clusters):
        raise DistributedEvaluationError(f"{len(scores)} scores but {len(clusters)} cluster labels: give one per score")
    code_of: dict[Hashable, int] = {}
    codes = np.array([code_of.setdefault(cluster, len(code_of)) for cluster in clusters], dtype=np.int64)
    values = np.array([np.nan if score is None else score for score in scores], dtype=np.float64)
    seen = ~np.isnan(values)
    totals = sums(codes[seen], values[seen], len(code_of))
    counts = sums(codes[seen], np.ones(int(seen.sum())), len(code_of))
    stderr = float(clustered_means(totals, counts, np.zeros(len(code_of), dtype=np.int64), 1).stderr[0])
    return None if np.isnan(stderr) else stderr


def clustered_means(totals: FloatArray, counts: FloatArray, groups: IntArray, num_groups: int) -> ClusteredMeans:
    """Return mean and `clustered_stderr` of each group of clusters.

    Args:
        totals: sum of the scores of each cluster, shape `(num_clusters,)`.
        counts: number of those scores; a cluster of 0 is left out.
        groups: group of each cluster, in [0, num_groups).
        num_groups: number of groups.
    """
    num_observations = sums(groups, counts, num_groups)
    num_clusters = np.bincount(groups[counts > 0], minlength=num_groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = sums(groups, totals, num_groups) / num_observations
        residuals = totals - np.where(counts > 0, value[groups], 0) * counts
        spread = sums(groups, residuals**2, num_groups)
        stderr = np.sqrt(spread * num_clusters / (num_clusters - 1)) / num_observations
    stderr[num_clusters < 2] = np.nan
    # Residuals of equal means are rounding errors of about 1e-16 of the mean: report the 0 that they stand for.
    stderr[stderr < 1e-13 * np.abs(value)] = 0.0
    return ClusteredMeans(value, stderr, num_clusters, num_observations)


def sums(codes: IntArray, weights: FloatArray, num_codes: int) -> FloatArray:
    """Return the sum of the weights of each code in [0, num_codes)."""
    return np.bincount(codes, weights, minlength=num_codes).astype(np.float64, copy=False)


def wilson_interval(num_correct: float, num_scored: float, confidence: float = CONFIDENCE) -> Interval | None:
    """Return the score interval of a proportion, within [0, 1]; None when nothing was scored.

    Wilson 1927, recommended for any n by Brown, Cai & DasGupta 2001, "Interval Estimation for a Binomial Proportion".
    Unlike value +/- 1.96 stderr it has a width at 0 and at 1. Counts may be fractional (effective sample sizes).

    Raises:
        DistributedEvaluationError: num_correct outside [0, num_scored].
    """
    if not 0 <= num_correct <= num_scored:
        raise DistributedEvaluationError(f"num_correct must be in [0, {num_scored}], got {num_correct}")
    if num_scored == 0:
        return None
    low, high = wilson_bounds(np.array([num_correct / num_scored]), np.array([float(num_scored)]), confidence)
    return Interval(float(low[0]), float(high[0]))


def wilson_bounds(ratios: FloatArray, counts: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return both ends of `wilson_interval` for arrays of proportions and numbers of trials (> 0)."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    centre = (ratios + z**2 / (2 * counts)) / (1 + z**2 / counts)
    half = z / (1 + z**2 / counts) * np.sqrt(ratios * (1 - ratios) / counts + z**2 / (4 * counts**2))
    # The ends at 0 and 1 are exact in theory and off by one rounding in floating point.
    low = np.where(ratios == 0, 0.0, np.maximum(centre - half, 0.0))
    high = np.where(ratios == 1, 1.0, np.minimum(centre + half, 1.0))
    return low, high


def student_quantile(degrees_of_freedom: IntArray | FloatArray, probability: float) -> FloatArray:
    """Return quantiles of Student's t; NaN below one degree of freedom.

    With G clusters the normal's 1.96 is too short for small G (Cameron & Miller 2015, sect. VI.A): t with G - 1 degrees
    is 2.78 at 5 items, 2.26 at 10, 2.01 at 50.
    """
    # Importing scipy costs half a second: only where an interval is asked for, never at the start of a command.
    from scipy.special import stdtrit

    defined = degrees_of_freedom >= 1
    quantiles = np.asarray(stdtrit(np.where(defined, degrees_of_freedom, 1.0), probability), dtype=np.float64)
    return np.where(defined, quantiles, np.nan)
