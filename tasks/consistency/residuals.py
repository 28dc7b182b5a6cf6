"""The statistics of one measure over several workers: standardised residuals, their confirmation, their blind spot.

The unit is an item of a worker, because repeats of one item resemble each other. A residual is standardised by the
variance that dealing the same items to the workers at random would give it (sampling without replacement, Cochran 1977,
"Sampling Techniques", theorem 2.2), so the bound for a normal distribution is exact for large shards. For small shards
and rare events it is not, so whatever exceeds it is confirmed by dealing at random indeed.
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

import numpy as np

from infra.arrays import FloatArray, IntArray
from tasks.metrics.estimators import POWER, sums

_MAX_UNITS: Final = 20_000
"""Units dealt at once while confirming; of more, neighbours of one worker are dealt together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTotals:
    """One measure summed by item and worker; arrays of shape `(num_units,)`, ordered by worker."""

    worker: IntArray
    """Index of the worker, in [0, num_workers)."""
    total: FloatArray
    """Sum of the scores of the item's samples."""
    count: FloatArray
    """Number of those samples, at least 1."""
    num_workers: int

    def without(self, worker: int) -> "ItemTotals":
        """Return the same without the items of one worker."""
        stays = self.worker != worker
        return replace(self, worker=self.worker[stays], total=self.total[stays], count=self.count[stays])


def total_by_item(scores: FloatArray, worker: IntArray, item: IntArray, num_workers: int) -> ItemTotals:
    """Return the sums of `scores` (NaN where unknown) over the samples of each item of each worker."""
    known = ~np.isnan(scores)
    num_items = int(item.max(initial=0)) + 1
    units, unit = np.unique(worker[known] * num_items + item[known], return_inverse=True)
    return ItemTotals(
        worker=units // num_items,
        total=sums(unit, scores[known], len(units)),
        count=np.bincount(unit, minlength=len(units)).astype(np.float64),
        num_workers=num_workers,
    )


def rank_scores(values: FloatArray) -> FloatArray:
    """Return the mid-ranks of `values` scaled into (0, 1); NaN stays.

    A completion of a hundred thousand tokens among short ones then weighs as much as the next longest.
    """
    known = ~np.isnan(values)
    _, code, counts = np.unique(values[known], return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2 + 0.5
    ranks = np.full(len(values), np.nan)
    ranks[known] = middle[code] / max(1, int(known.sum()))
    return ranks


def standardised_residuals(units: ItemTotals) -> FloatArray:
    """Return one residual per worker; NaN for a worker without units, or where nothing is there to compare with."""
    deviation = _deviations(units)
    scale = _scale(units.worker, units.num_workers)
    variance = float(np.var(deviation, ddof=1)) if len(deviation) > 1 else math.nan
    sum_by_worker = sums(units.worker, deviation, units.num_workers)
    if variance < 1e-18:  # rounding errors of equal values
        return np.where(np.isnan(scale), np.nan, 0.0)
    return sum_by_worker / (scale * math.sqrt(variance))


def normal_bound(alpha: float, num_comparisons: int) -> float:
    """Return the two-sided bound that `num_comparisons` residuals together exceed with chance `alpha` (Bonferroni)."""
    return NormalDist().inv_cdf(1 - alpha / (2 * max(1, num_comparisons)))


def confirm(units: ItemTotals, *, alpha: float, rng: np.random.Generator) -> float:
    """Return the chance that dealing the items at random gives some worker as large a residual as was seen.

    A permutation test of the largest residual (Westfall & Young 1993), whose false alarms are at most `alpha` for any
    distribution of the measure. Ends early once the chance is known to exceed `alpha`: the result is then the estimate
    so far.
    """
    deviation, worker = _pooled(_deviations(units), units.worker)
    scale = _scale(worker, units.num_workers)
    filled = ~np.isnan(scale)
    starts = np.searchsorted(worker, np.flatnonzero(filled))
    observed = float(np.max(np.abs(np.add.reduceat(deviation, starts)) / scale[filled]))
    num_draws = math.ceil(2 / alpha) - 1
    num_as_large = 0
    for drawn in range(1, num_draws + 1):
        dealt = np.add.reduceat(rng.permutation(deviation), starts)
        # equal sums in another order differ by rounding
        num_as_large += bool(np.max(np.abs(dealt) / scale[filled]) >= observed * (1 - 1e-9))
        if (num_as_large + 1) / (num_draws + 1) > alpha:
            return (num_as_large + 1) / (drawn + 1)
    return (num_as_large + 1) / (num_draws + 1)


def detectable_differences(units: ItemTotals, bound: float, *, is_rate: bool) -> FloatArray:
    """Return per worker the difference of its mean from the others' that exceeds `bound` with `POWER`; NaN: unknown."""
    num_units = np.bincount(units.worker, minlength=units.num_workers).astype(np.float64)
    per_unit = float(units.count.mean())
    variance = float(np.var(_deviations(units), ddof=1)) / per_unit**2 if len(units.total) > 1 else math.nan
    if is_rate:
        # where nothing varied, as with a perfect score, the next sample still may (rule of succession)
        share = (float(units.total.sum()) + 1) / (float(units.count.sum()) + 2)
        variance = max(variance, share * (1 - share) / per_unit)
    rest = num_units.sum() - num_units
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(variance * (1 / num_units + 1 / rest))
    spread[~np.isfinite(spread)] = np.nan
    return (bound + NormalDist().inv_cdf(POWER)) * spread


def _deviations(units: ItemTotals) -> FloatArray:
    """Return by how much each item's sum is off what its number of samples leads to expect; they add up to 0."""
    mean = float(units.total.sum()) / max(1.0, float(units.count.sum()))
    return units.total - units.count * mean


def _scale(worker: IntArray, num_workers: int) -> FloatArray:
    """Return the standard deviation of each worker's sum of random units of variance 1; NaN for none, or for all."""
    mine = np.bincount(worker, minlength=num_workers).astype(np.float64)
    scale = np.sqrt(mine * (len(worker) - mine) / max(1, len(worker)))
    return np.where(scale > 0, scale, np.nan)


def _pooled(deviation: FloatArray, worker: IntArray) -> tuple[FloatArray, IntArray]:
    """Return at most about `_MAX_UNITS` sums of neighbouring units of one worker."""
    size = -(-len(deviation) // _MAX_UNITS)
    if size == 1:
        return deviation, worker
    first = np.searchsorted(worker, worker)
    mine = np.bincount(worker)[worker]
    num_blocks = np.maximum(1, mine // size)
    block = (np.arange(len(worker)) - first) * num_blocks // mine
    begins = np.flatnonzero(np.diff(worker * len(worker) + block, prepend=-1))
    return np.add.reduceat(deviation, begins), worker[begins]
