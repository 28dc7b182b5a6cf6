"""Comparing two runs: its configuration and its result."""

from pydantic import Field

from schemas.base import Model, Section


class CompareConfig(Section):
    """How sure a comparison has to be."""

    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """Two-sided level: the interval covers 1 - alpha, and a true null is rejected this often."""
    power: float = Field(default=0.8, ge=0.5, lt=1)
    """Chance of seeing the minimum detectable effect; 0.8 is the convention of trial design."""
    num_resamples: int = Field(default=9_999, ge=99, le=1_000_000)
    """Random sign patterns of the permutation test; 9,999 resolve a p-value of 0.05 to about 0.002."""
    min_shared_items: int = Field(default=20, ge=2)
    """Items that two versions of a dataset must share to be compared at all. 20 give a standard error of 10 points
    when the runs disagree on a fifth of them: with fewer, hardly any difference could be told from none."""
    seed: int = 0
    """Seed of those patterns: the same tables give the same p-value."""


class Comparison(Model):
    """How a candidate differs from a baseline in mean score per item. Undefined numbers are None."""

    difference: float | None
    """Mean score of the candidate minus that of the baseline, each item counted once; in [-1, 1]."""
    stderr: float | None
    """Standard error of the difference, by cluster; None with fewer than two clusters or no spread seen."""
    ci_low: float | None
    """Lower end of the (1 - alpha) confidence interval."""
    ci_high: float | None
    """Upper end of the (1 - alpha) confidence interval."""
    p_value: float | None
    """Two-sided p-value of no difference."""
    minimum_detectable_effect: float | None
    """Smallest true difference that these items would show with the configured power."""
    baseline_mean: float | None
    """Mean score of the baseline over the items compared, each counted once."""
    candidate_mean: float | None
    """Mean score of the candidate over the items compared, each counted once."""
    paired: bool
    """Whether the two are compared item by item; else as independent sets."""
    is_linked: bool = False
    """Whether the two are of different versions of the dataset and compared over the items that both ask alike; every
    number here is of these items alone."""
    num_items: int
    """Items compared: the shared ones when paired, else the scored items of both together."""
    num_clusters: int | None = None
    """Independent groups of these items (`cluster_id`; an item without one is its own), on which the errors rest; None
    in comparisons of earlier versions."""
    differences: tuple[str, ...]
    """What else differs between the two tables, in words: read it before the numbers."""
