"""Two runs against each other: difference, interval, p-value, and what could have been seen at all.

Owns the method; reads the columns of `samples`. Repeats of an item are not independent, nor are items of one cluster
(`cluster_id`), so the unit is always the cluster, which is the item where nothing says otherwise: a bootstrap over rows
rejects a true null in 4 of 10 cases where there are ten repeats per item.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.arrays import FloatArray, IntArray
from schemas.comparison import CompareConfig, Comparison
from schemas.errors import DatasetError
from tasks.metrics.columns import SampleColumns, code_text, read_columns
from tasks.metrics.difference import (
    clustered_effect,
    defined,
    interval,
    interval_without_spread,
    is_zero,
    minimum_detectable_effect,
    sign_flip_p_value,
    student_p_value,
    welch_difference,
)
from tasks.metrics.estimators import sums
from tasks.metrics.linking import find_changed, find_clusters, link_items, number_clusters

_KEYS: Final = ("item_id", "prompt_hash", "prompt")
"""Columns that say which item a row belongs to, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Items:
    """Mean score of each item of one table that has one."""

    ids: list[str]
    means: FloatArray
    num_samples: FloatArray
    num_missing: int
    cluster_of: dict[str, str]
    """Cluster of each item that does not stand alone."""


def compare(baseline: pa.Table, candidate: pa.Table, *, config: CompareConfig | None = None) -> Comparison:
    """Return how the mean score per item of `candidate` differs from that of `baseline`.

    With shared items the comparison is paired over them (Miller 2024, "Adding Error Bars to Evals", sect. 4): one
    difference of means per item; the p-value by flipping the signs of clusters at random (Fisher 1935), exact for up to
    12 differing ones; the interval by Student's t with G - 1 degrees for G clusters. Without shared items the two are
    independent sets, by Welch's test over clusters. Two versions of a dataset are compared over the items that both ask
    alike, or not at all. docs/metrics.md has the formulas.

    Args:
        baseline: columns of `samples`, all or some: score or verdict, and item_id (else prompt_hash, else prompt).
        candidate: the same.
        config: level, power and resampling.

    Raises:
        DatasetError: a table has neither score nor verdict, or two versions share too few items.
        DistributedEvaluationError: a table holds several runs, a sample twice, or a verdict that does not exist.
    """
    config = config or CompareConfig()
    key = _shared_key(baseline, candidate)
    first, second = _items(baseline, key, "baseline"), _items(candidate, key, "candidate")
    shared = sorted(set(first.ids) & set(second.ids)) if key is not None else []
    changed = find_changed(baseline, candidate, key or "", shared) if shared else {}
    versions = _describe_change(baseline, candidate, "dataset_version")
    differences = [one for one in (_describe_change(baseline, candidate, "dataset"), versions) if one]
    if versions is not None:
        shared = link_items(shared, changed, versions=versions, min_items=config.min_shared_items)
        differences.append(f"compared over the {len(shared)} items that both versions ask alike, and over no others")
    elif key is None:
        differences.append("no column item_id in both: the spread between items is unknown")
    else:
        differences += [
            f"{what} of {len(items)} of {len(shared)} shared items differ" for what, items in changed.items()
        ]
    if shared:
        differences += _coverage_differences(first, second, len(shared))
        # the candidate's word first: an older run may have been published before there were clusters
        clusters = number_clusters(shared, first.cluster_of | second.cluster_of)
        compared = _compare_paired((_pick(first, shared), _pick(second, shared)), clusters, config, differences)
        return compared.model_copy(update={"is_linked": versions is not None})
    if key is not None and first.ids and second.ids:
        differences.append("no item is shared: compared as independent sets")
    differences += _missing_differences(first, second)
    return _compare_independent(first, second, config, differences, is_clustered=key is not None)


def _compare_paired(
    means: tuple[FloatArray, FloatArray], clusters: IntArray, config: CompareConfig, differences: list[str]
) -> Comparison:
    first, second = means
    effect, cluster_gaps = clustered_effect(second - first, clusters)
    num_clusters = len(cluster_gaps)
    low, high = interval(effect, config.alpha)
    if num_clusters > 1 and is_zero(effect.stderr):
        low, high = interval_without_spread(effect.difference, num_clusters, config.alpha)
    return Comparison(
        difference=effect.difference,
        stderr=defined(effect.stderr),
        ci_low=low,
        ci_high=high,
        p_value=sign_flip_p_value(
            cluster_gaps, num_resamples=config.num_resamples, rng=np.random.default_rng(config.seed)
        )
        if num_clusters > 1
        else None,
        minimum_detectable_effect=minimum_detectable_effect(effect, alpha=config.alpha, power=config.power),
        baseline_mean=float(first.mean()),
        candidate_mean=float(second.mean()),
        paired=True,
        num_items=len(first),
        num_clusters=num_clusters,
        differences=tuple(differences),
    )


def _compare_independent(
    first: _Items, second: _Items, config: CompareConfig, differences: list[str], *, is_clustered: bool
) -> Comparison:
    sides = [clustered_effect(side.means, number_clusters(side.ids, side.cluster_of)) for side in (first, second)]
    effect = welch_difference(sides[0].effect, sides[1].effect, is_clustered=is_clustered)
    low, high = interval(effect, config.alpha)
    return Comparison(
        difference=defined(effect.difference, keep_zero=True),
        stderr=defined(effect.stderr),
        ci_low=low,
        ci_high=high,
        p_value=student_p_value(effect),
        minimum_detectable_effect=minimum_detectable_effect(effect, alpha=config.alpha, power=config.power),
        baseline_mean=float(first.means.mean()) if len(first.means) else None,
        candidate_mean=float(second.means.mean()) if len(second.means) else None,
        paired=False,
        num_items=len(first.means) + len(second.means),
        num_clusters=sum(len(side.cluster_totals) for side in sides),
        differences=tuple(differences),
    )


def _shared_key(baseline: pa.Table, candidate: pa.Table) -> str | None:
    for key in _KEYS:
        if key in baseline.column_names and key in candidate.column_names:
            return key
    return None


def _items(table: pa.Table, key: str | None, side: str) -> _Items:
    columns, ids = _read(table, key, side)
    cluster_of = find_clusters(table, key)
    counts = sums(columns.item, columns.scored.astype(np.float64), columns.num_items)
    totals = sums(columns.item[columns.scored], columns.score[columns.scored], columns.num_items)
    seen = counts > 0
    return _Items(
        ids=[one for one, has_score in zip(ids, seen.tolist(), strict=True) if has_score],
        means=totals[seen] / counts[seen],
        num_samples=counts[seen],
        num_missing=int((~columns.scored).sum()),
        cluster_of=cluster_of,
    )


def _read(table: pa.Table, key: str | None, side: str) -> tuple[SampleColumns, list[str]]:
    if not {"score", "verdict"} & set(table.column_names):
        raise DatasetError(
            f"the {side} has neither score nor verdict, without which nothing can be compared; "
            f"it has {', '.join(table.column_names) or 'no columns'}"
        )
    wanted = table.select([name for name in table.column_names if name in ("repeat", "verdict", "score", "run_id")])
    if key is None:
        ids = pa.array([str(row) for row in range(table.num_rows)], pa.string())
    else:
        ids = table.column(key).cast(pa.string())
    if key not in (None, "item_id") and "repeat" in wanted.column_names:
        # Two items may have one prompt; their repeats then look like duplicates, and are not.
        wanted = wanted.drop_columns("repeat")
    columns = read_columns(wanted.append_column("item_id", ids))
    return columns, sorted(map(str, pc.unique(ids).to_pylist()))


def _pick(items: _Items, shared: list[str]) -> FloatArray:
    place = {one: index for index, one in enumerate(items.ids)}
    rows: IntArray = np.array([place[one] for one in shared], dtype=np.int64)
    return items.means[rows]


def _describe_change(baseline: pa.Table, candidate: pa.Table, name: str) -> str | None:
    """Return `name before -> after` where the two tables say different things, None where one of them says nothing."""
    if name not in baseline.column_names or name not in candidate.column_names:
        return None
    before, after = (sorted(code_text(table, name).values) for table in (baseline, candidate))
    return f"{name} {', '.join(before)} -> {', '.join(after)}" if before and after and before != after else None


def _coverage_differences(first: _Items, second: _Items, num_shared: int) -> list[str]:
    differences: list[str] = []
    for side, items in (("baseline", first), ("candidate", second)):
        num_alone = len(items.ids) - num_shared
        if num_alone:
            differences.append(f"{num_alone} items are scored in the {side} only and left out")
    before, after = (float(items.num_samples.mean()) for items in (first, second))
    if round(before, 2) != round(after, 2):
        differences.append(f"scored samples per item {before:.4g} -> {after:.4g}")
    return differences + _missing_differences(first, second)


def _missing_differences(first: _Items, second: _Items) -> list[str]:
    if first.num_missing == second.num_missing:
        return []
    return [f"samples without a score {first.num_missing} -> {second.num_missing}"]
