"""The statistics of a difference between two means: errors, intervals, p-values, detectable effects.

Owns the formulas; pure functions of numbers, no tables. docs/metrics.md states each with its source.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from infra.arrays import FloatArray, IntArray
from tasks.metrics.estimators import clustered_means, student_quantile, sums, wilson_interval

_EXACT_ITEMS: Final = 12
"""Up to so many differing items all 2^n sign patterns are tried."""
_MAX_MAGNITUDES: Final = 20_000
"""Distinct sizes of difference that resampling takes; beyond them the statistic is normal to many digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A difference with what is known of its error; NaN where undefined."""

    difference: float
    stderr: float
    degrees_of_freedom: float


def sign_flip_p_value(gaps: FloatArray, *, num_resamples: int, rng: np.random.Generator) -> float:
    """Return the two-sided p-value of paired differences whose signs are arbitrary under the null.

    All sign patterns up to 12 nonzero differences, else (b + 1) / (m + 1) over m random ones, which never understates
    (Phipson & Smyth 2010). Equal sizes are flipped together as one binomial draw, so a million items cost no more than
    their few distinct differences.

    Args:
        gaps: sum of the differences of each cluster, shape `(num_clusters,)`; its signs flip together.
        num_resamples: m.
        rng: source of the patterns.
    """
    # Differences of means of a few samples are multiples of a fraction: rounding makes equal ones equal.
    sizes, counts = np.unique(np.round(np.abs(gaps[gaps != 0]), 12), return_counts=True)
    observed = abs(float(np.round(gaps, 12).sum()))
    if len(sizes) == 0:
        return 1.0
    limit = observed * (1 - 1e-9)
    if counts.sum() <= _EXACT_ITEMS:
        each = np.repeat(sizes, counts)
        signs = 1 - 2 * ((np.arange(2 ** len(each))[:, None] >> np.arange(len(each))) & 1)
        return float((np.abs(signs @ each) >= limit).mean())
    if len(sizes) > _MAX_MAGNITUDES:
        return 2 * NormalDist().cdf(-observed / float(np.sqrt((counts * sizes**2).sum())))
    reached = 0
    step = max(1, 2_000_000 // len(sizes))
    for start in range(0, num_resamples, step):
        positive = rng.binomial(counts, 0.5, size=(min(step, num_resamples - start), len(sizes)))
        reached += int((np.abs((2 * positive - counts) @ sizes) >= limit).sum())
    return (reached + 1) / (num_resamples + 1)


class MeanEffect(NamedTuple):
    """A mean over items with its cluster-robust error."""

    effect: Effect
    cluster_totals: FloatArray
    """Sum over the items of each cluster, `(num_clusters,)`."""


def clustered_effect(values: FloatArray, clusters: IntArray) -> MeanEffect:
    """Return the mean of one value per item; error and degrees of freedom (G - 1) by cluster.

    Args:
        values: one per item, shape `(num_items,)`.
        clusters: cluster of each item, in [0, num_clusters).
    """
    num_clusters = int(clusters.max(initial=-1)) + 1
    totals = sums(clusters, values, num_clusters)
    counts = sums(clusters, np.ones(len(values)), num_clusters)
    means = clustered_means(totals, counts, np.zeros(num_clusters, dtype=np.int64), 1)
    effect = Effect(
        difference=float(means.value[0]),
        stderr=float(means.stderr[0]),
        degrees_of_freedom=int(means.num_clusters[0]) - 1,
    )
    return MeanEffect(effect, totals)


def welch_difference(first: Effect, second: Effect, *, is_clustered: bool) -> Effect:
    """Return the difference of two independent means; degrees of freedom by Welch & Satterthwaite."""
    difference = second.difference - first.difference
    errors = np.array([first.stderr, second.stderr])
    total = float((errors**2).sum())
    if not is_clustered or np.isnan(total) or is_zero(float(np.sqrt(total))):
        return Effect(difference=difference, stderr=np.nan, degrees_of_freedom=np.nan)
    freedoms = np.array([first.degrees_of_freedom, second.degrees_of_freedom])
    freedom = total**2 / float((errors**4 / freedoms).sum())
    return Effect(difference=difference, stderr=float(np.sqrt(total)), degrees_of_freedom=freedom)


def interval(effect: Effect, alpha: float) -> tuple[float | None, float | None]:
    if defined(effect.stderr) is None:
        return None, None
    half = _quantile(effect, 1 - alpha / 2) * effect.stderr
    # Scores lie in [0, 1], so no difference lies outside [-1, 1].
    return max(effect.difference - half, -1.0), min(effect.difference + half, 1.0)


def interval_without_spread(difference: float, num_clusters: int, alpha: float) -> tuple[float | None, float | None]:
    """Bound the difference when all clusters show the same: by Wilson, at most a share w of unseen ones may deviate."""
    none_of_them = wilson_interval(0, num_clusters, 1 - alpha)
    if none_of_them is None:
        return None, None
    share = none_of_them.high
    return difference - share * (1 + difference), difference + share * (1 - difference)


def student_p_value(effect: Effect) -> float | None:
    if defined(effect.stderr) is None:
        return None
    from scipy.special import stdtr

    return float(2 * stdtr(effect.degrees_of_freedom, -abs(effect.difference) / effect.stderr))


def minimum_detectable_effect(effect: Effect, *, alpha: float, power: float) -> float | None:
    """Return (t_{1-alpha/2} + t_power) * stderr: Miller 2024, sect. 5, with t for z."""
    if defined(effect.stderr) is None:
        return None
    return (_quantile(effect, 1 - alpha / 2) + _quantile(effect, power)) * effect.stderr


def _quantile(effect: Effect, probability: float) -> float:
    return float(student_quantile(np.array([effect.degrees_of_freedom]), probability)[0])


def is_zero(stderr: float) -> bool:
    return stderr < 1e-12


def defined(number: float, *, keep_zero: bool = False) -> float | None:
    """Return None for what is undefined, and for a standard error of 0: no spread seen is no spread known."""
    return None if np.isnan(number) or (not keep_zero and is_zero(number)) else number
