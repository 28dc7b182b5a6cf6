"""Samples to metrics: every metric of every subset, with errors that know which samples belong together.

Owns the list of metrics and the table they fill; the formulas are in `estimators` and `voting`. Each metric is a sum
and a count per item, so that all subsets are done at once and time is linear in the samples. To add a metric, add a
function that returns its `Metric` and name it in `_metrics`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from infra.arrays import BoolArray, FloatArray, IntArray
from schemas.sections import MetricsConfig
from schemas.states import Verdict
from schemas.tables import METRICS
from tasks.metrics.agreement import agreement_per_item
from tasks.metrics.columns import IDENTITY_COLUMNS, VERDICT_CODES, SampleColumns, SampleTable, read_columns
from tasks.metrics.estimators import (
    CONFIDENCE,
    clustered_means,
    pass_at_k_per_item,
    student_quantile,
    sums,
    wilson_bounds,
)
from tasks.metrics.strata import Strata, read_strata
from tasks.metrics.voting import hold_votes


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric before it is averaged over items; arrays of shape `(num_items,)`."""

    name: str
    totals: FloatArray
    """Sum of the observations of each item."""
    counts: FloatArray
    """Number of them; 0 where the item has none."""
    low: float
    """Least possible value."""
    high: float
    """Largest possible value."""
    higher_is_better: bool | None


def aggregate(samples: SampleTable, *, config: MetricsConfig | None = None) -> pa.Table:
    """Return the metrics of one run's samples, one row per subset and metric (schema METRICS).

    A `pyarrow.dataset.Dataset` is read by the needed columns alone, which keeps a million samples under 1.5 GiB. An
    absent column leaves out the metrics that need it. The order of the rows does not change a bit of the result.

    Raises:
        DistributedEvaluationError: no item_id, neither verdict nor score, an unknown verdict, an (item_id, repeat) that
            occurs twice, or rows of several runs.
    """
    columns = read_columns(samples)
    strata = read_strata(columns)
    metrics = list(_metrics(columns, config or MetricsConfig()))
    # With one sample per cluster every rate is a count of independent trials, which is what Wilson's interval is for.
    binomial = columns.n_samples <= 1 and columns.cluster is None
    estimates = [_estimate(metric, strata, binomial=binomial) for metric in metrics]
    return _table(columns, strata, metrics, estimates)


def _metrics(columns: SampleColumns, config: MetricsConfig) -> Iterator[Metric]:
    n = columns.n_samples
    yield _rate("accuracy", columns, columns.correct, columns.scored, higher_is_better=True)
    if n > 1:
        yield _average(columns, n)
    for k in default_pass_ks(n) if config.pass_at_k is None else config.pass_at_k:
        yield _pass_at_k(columns, k)
    default_maj_ks = (n,) if n > 1 else ()
    for k in default_maj_ks if config.maj_at_k is None else config.maj_at_k:
        yield from _maj_at_k(columns, k)
    if n > 1:
        yield from _self_consistency(columns)
    if columns.length is not None:
        yield _mean("response_length", columns, columns.length, low=0.0, higher_is_better=None)
    if columns.truncated is not None:
        seen = ~np.isnan(columns.truncated)
        yield _rate("truncation_rate", columns, columns.truncated == 1, seen, higher_is_better=False)
    if columns.verdict is not None:
        silent = columns.verdict == VERDICT_CODES[Verdict.NO_ANSWER]
        yield _rate("no_answer_rate", columns, silent, columns.scored, higher_is_better=False)
    if columns.reward is not None and not np.isnan(columns.reward).all():
        yield _mean("reward", columns, columns.reward, low=-np.inf, higher_is_better=True)


def default_pass_ks(n_samples: int) -> tuple[int, ...]:
    """Return the powers of two below n_samples, and n_samples itself; (1,) without samples."""
    powers = [2**power for power in range(n_samples.bit_length()) if 2**power < n_samples]
    return (*powers, max(n_samples, 1))


def _rate(name: str, columns: SampleColumns, hit: BoolArray, among: BoolArray, *, higher_is_better: bool) -> Metric:
    totals = sums(columns.item, (hit & among).astype(np.float64), columns.num_items)
    counts = sums(columns.item, among.astype(np.float64), columns.num_items)
    return Metric(name=name, totals=totals, counts=counts, low=0.0, high=1.0, higher_is_better=higher_is_better)


def _mean(
    name: str, columns: SampleColumns, values: FloatArray, *, low: float, higher_is_better: bool | None
) -> Metric:
    seen = ~np.isnan(values)
    totals = sums(columns.item[seen], values[seen], columns.num_items)
    counts = sums(columns.item, seen.astype(np.float64), columns.num_items)
    return Metric(name=name, totals=totals, counts=counts, low=low, high=np.inf, higher_is_better=higher_is_better)


def _average(columns: SampleColumns, n: int) -> Metric:
    """avg@n counts each item once, however many of its samples failed; partial credit counts in part."""
    counts = sums(columns.item, columns.scored.astype(np.float64), columns.num_items)
    totals = sums(columns.item[columns.scored], columns.score[columns.scored], columns.num_items)
    return _per_item(f"avg@{n}", totals / np.maximum(counts, 1), counts > 0)


def _pass_at_k(columns: SampleColumns, k: int) -> Metric:
    num_scored = np.bincount(columns.item[columns.scored], minlength=columns.num_items)
    num_correct = np.bincount(columns.item[columns.correct], minlength=columns.num_items)
    return _per_item(f"pass@{k}", pass_at_k_per_item(num_scored, num_correct, k), num_scored >= k)


def _maj_at_k(columns: SampleColumns, k: int) -> Iterator[Metric]:
    """maj@k and how often its first place was shared; nothing where answers were not kept."""
    if columns.answer is None:
        return
    votes = hold_votes(
        columns.item[columns.scored],
        columns.answer[columns.scored],
        columns.correct[columns.scored],
        k=k,
        num_items=columns.num_items,
    )
    known = (votes.num_votes > 0) & _answers_kept(columns, columns.answer)
    yield _per_item(f"maj@{k}", votes.value, known)
    yield Metric(
        name=f"maj_tie_rate@{k}",
        totals=np.where(known, votes.num_ties, 0).astype(np.float64),
        counts=np.where(known, votes.num_votes, 0).astype(np.float64),
        low=0.0,
        high=1.0,
        higher_is_better=None,
    )


def _self_consistency(columns: SampleColumns) -> Iterator[Metric]:
    """Agreement of an item's samples; nothing where answers were not kept."""
    if columns.answer is None:
        return
    values = agreement_per_item(
        columns.item[columns.scored],
        columns.answer[columns.scored],
        columns.correct[columns.scored],
        num_items=columns.num_items,
    )
    known = ~np.isnan(values) & _answers_kept(columns, columns.answer)
    # Neither direction is better: samples may agree on a wrong answer.
    yield _per_item("self_consistency", values, known, higher_is_better=None)


def _answers_kept(columns: SampleColumns, answer: IntArray) -> BoolArray:
    """Return the items whose wrong samples all have an answer; a reward function keeps none."""
    if columns.verdict is None:
        return np.ones(columns.num_items, dtype=np.bool_)
    wrong = columns.verdict == VERDICT_CODES[Verdict.WRONG]
    return np.bincount(columns.item[wrong & (answer < 0)], minlength=columns.num_items) == 0


def _per_item(name: str, values: FloatArray, defined: BoolArray, *, higher_is_better: bool | None = True) -> Metric:
    """Return a metric with one observation in [0, 1] per item."""
    return Metric(
        name=name,
        totals=np.where(defined, values, 0.0),
        counts=defined.astype(np.float64),
        low=0.0,
        high=1.0,
        higher_is_better=higher_is_better,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimates:
    """One metric in every subset, arrays of shape `(num_subsets,)`; NaN where undefined."""

    value: FloatArray
    stderr: FloatArray
    ci_low: FloatArray
    ci_high: FloatArray


def _estimate(metric: Metric, strata: Strata, *, binomial: bool) -> _Estimates:
    num_clusters = len(strata.cluster_subset)
    totals, counts = (
        sums(strata.cluster, column[strata.item], num_clusters) for column in (metric.totals, metric.counts)
    )
    value, stderr, num_seen, num_observations = clustered_means(
        totals, counts, strata.cluster_subset, len(strata.names)
    )
    half = student_quantile(num_seen - 1, 0.5 + CONFIDENCE / 2) * stderr
    low, high = np.maximum(value - half, metric.low), np.minimum(value + half, metric.high)
    # No spread seen is no proof that there is none: no standard error, and an interval by the number of clusters, which
    # exists where the values are bounded.
    unseen = (stderr == 0) | (num_seen < 2)
    low, high, stderr = (np.where(unseen, np.nan, column) for column in (low, high, stderr))
    if metric.high == 1:
        trials = num_observations if binomial else num_seen.astype(np.float64)
        scored = (num_seen >= 2) & (unseen | binomial)
        low[scored], high[scored] = wilson_bounds(np.clip(value[scored], 0, 1), trials[scored], CONFIDENCE)
    return _Estimates(value=value, stderr=stderr, ci_low=low, ci_high=high)


def _table(columns: SampleColumns, strata: Strata, metrics: list[Metric], estimates: list[_Estimates]) -> pa.Table:
    """Lay out the rows by subset, then metric."""
    num_subsets, num_metrics = len(strata.names), len(metrics)
    num_rows = num_subsets * num_metrics
    planned = sums(columns.item, np.ones(len(columns.item)), columns.num_items)
    scored = sums(columns.item, columns.scored.astype(np.float64), columns.num_items)
    num_planned = _counts(planned, strata, num_metrics)
    num_scored = _counts(scored, strata, num_metrics)
    arrays: dict[str, pa.Array[Any]] = {
        "subset": pa.array([name for name in strata.names for _ in metrics], pa.string()),
        "metric": pa.array([metric.name for metric in metrics] * num_subsets, pa.string()),
        "value": _interleave([estimate.value for estimate in estimates]),
        "stderr": _interleave([estimate.stderr for estimate in estimates]),
        "ci_low": _interleave([estimate.ci_low for estimate in estimates]),
        "ci_high": _interleave([estimate.ci_high for estimate in estimates]),
        "num_planned": pa.array(num_planned),
        "num_scored": pa.array(num_scored),
        "num_failed": pa.array(num_planned - num_scored),
        "higher_is_better": pa.array([metric.higher_is_better for metric in metrics] * num_subsets, pa.bool_()),
    }
    for name in IDENTITY_COLUMNS:
        # A table without its identity (computed by hand, say) still has metrics; their names are then empty.
        empty = None if METRICS.field(name).nullable else ""
        value = columns.identity.get(name)
        arrays[name] = pa.array([empty if value is None else value] * num_rows, METRICS.field(name).type)
    return pa.Table.from_arrays([arrays[name] for name in METRICS.names], schema=METRICS)


def _counts(per_item: FloatArray, strata: Strata, num_metrics: int) -> IntArray:
    per_subset = sums(strata.subset, per_item[strata.item], len(strata.names)).astype(np.int64)
    return np.repeat(per_subset, num_metrics)


def _interleave(columns: list[FloatArray]) -> "pa.Array[Any]":
    values = np.stack(columns, axis=1).ravel()
    return pa.array(values, pa.float64(), mask=~np.isfinite(values))
