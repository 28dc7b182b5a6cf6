"""Drift of what a model makes: two runs on the same problems, paired by item.

Owns which traits of the outputs are compared; the test is that of tasks/metrics/difference.py. A model that grows
terse, sure of itself or silent shows here before its accuracy does.
"""

import math
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from infra.arrays import FloatArray, IntArray
from schemas.drift import DriftConfig, FeatureDrift
from schemas.errors import DatasetError
from schemas.states import FinishReason, Verdict
from tasks.drift.detector import SHARE_FLOOR, decide, number_bars
from tasks.drift.two_samples import SEED, Level
from tasks.metrics.difference import clustered_effect, minimum_detectable_effect, sign_flip_p_value
from tasks.metrics.estimators import POWER
from tasks.metrics.linking import find_clusters, number_clusters

_PER_STEP: Final = 10
"""How many times smaller than the strict level a p-value can be."""


class _Trait(NamedTuple):
    """What is compared of a completion."""

    name: str
    column: str
    read: Callable[[object], float | None]
    """From a cell to a number; None where the sample has none."""
    is_rate: bool


def _number(cell: object) -> float | None:
    return float(cell) if isinstance(cell, int | float) and math.isfinite(cell) else None


def _is_truncated(cell: object) -> float | None:
    return None if cell is None else float(cell == FinishReason.LENGTH)


def _has_no_answer(cell: object) -> float | None:
    return float(cell == Verdict.NO_ANSWER) if cell in _SCORED else None


_SCORED: Final = frozenset(verdict.value for verdict in Verdict if verdict.is_scored)
_TRAITS: Final = (
    _Trait("response_length", "num_completion_tokens", _number, is_rate=False),
    _Trait("entropy", "entropy", _number, is_rate=False),
    _Trait("mean_logprob", "mean_logprob", _number, is_rate=False),
    _Trait("no_answer_rate", "verdict", _has_no_answer, is_rate=True),
    _Trait("truncation_rate", "finish_reason", _is_truncated, is_rate=True),
)


def output_columns() -> list[str]:
    """Return the columns of `samples` that `compare_outputs` reads."""
    return ["item_id", "cluster_id", *dict.fromkeys(trait.column for trait in _TRAITS)]


def compare_outputs(
    baseline: pa.Table, candidate: pa.Table, *, config: DriftConfig | None = None
) -> tuple[FeatureDrift, ...]:
    """Return how the outputs of `candidate` differ from those of `baseline`, one entry per trait that both have.

    Repeats of an item are averaged first. The p-value flips the signs of the clusters' differences at random, an item
    being a cluster unless cluster_id says otherwise; significance (Holm) and floor decide as for the dataset.

    Args:
        baseline: samples of an earlier run: item_id and any of num_completion_tokens, entropy, mean_logprob, verdict
            and finish_reason.
        candidate: the same of a later run on the same problems.
        config: level and floors.

    Raises:
        DatasetError: no column item_id, or no trait that both have for a shared item.
    """
    config = config or DriftConfig()
    for side, table in (("baseline", baseline), ("candidate", candidate)):
        if "item_id" not in table.column_names:
            raise DatasetError(f"the {side} has no column item_id; it has {', '.join(table.column_names)}")
    cluster_of = find_clusters(baseline, "item_id") | find_clusters(candidate, "item_id")
    pairs = {trait: _pair(baseline, candidate, trait, cluster_of) for trait in _TRAITS}
    pairs = {trait: pair for trait, pair in pairs.items() if len(pair.before)}
    if not pairs:
        raise DatasetError(
            "the two runs share no item with a value of "
            f"{', '.join(trait.column for trait in _TRAITS)}; compare runs on the same problems"
        )
    level = Level(alpha=config.alpha, num_features=len(pairs))
    return decide([_compare(trait, pair, level, config) for trait, pair in pairs.items()], config.alpha)


class _Pair(NamedTuple):
    """One trait of the shared items, in order of item_id; arrays of shape `(num_items,)`."""

    before: FloatArray
    after: FloatArray
    clusters: IntArray
    """Which items belong together."""


def _pair(baseline: pa.Table, candidate: pa.Table, trait: _Trait, cluster_of: Mapping[str, str]) -> _Pair:
    first, second = _means(baseline, trait), _means(candidate, trait)
    shared = sorted(first.keys() & second.keys())
    return _Pair(
        np.array([first[item] for item in shared]),
        np.array([second[item] for item in shared]),
        number_clusters(shared, cluster_of),
    )


def _means(table: pa.Table, trait: _Trait) -> dict[str, float]:
    if trait.column not in table.column_names:
        return {}
    values: dict[str, list[float]] = {}
    cells = zip(table.column("item_id").to_pylist(), table.column(trait.column).to_pylist(), strict=True)
    for item, cell in cells:
        value = trait.read(cell)
        if value is not None:
            values.setdefault(str(item), []).append(value)
    return {item: fmean(repeats) for item, repeats in values.items()}


def _compare(trait: _Trait, pair: _Pair, level: Level, config: DriftConfig) -> FeatureDrift:
    before, after, clusters = pair
    num_items = len(before)
    scale = 1.0 if trait.is_rate else float(before.std()) or float(np.concatenate([before, after]).std()) or 1.0
    effect, cluster_gaps = clustered_effect(after - before, clusters)
    mean = effect.difference
    detectable = minimum_detectable_effect(effect, alpha=level.strict, power=POWER)
    return FeatureDrift(
        name=trait.name,
        kind="output",
        test="signs of the items' differences flipped at random",
        statistic=mean,
        effect=abs(mean) / scale,
        effect_floor=config.threshold * (SHARE_FLOOR if trait.is_rate else 1.0),
        p_value=sign_flip_p_value(
            cluster_gaps, num_resamples=math.ceil(_PER_STEP / level.strict) - 1, rng=np.random.default_rng(SEED)
        )
        if len(cluster_gaps) > 1
        else None,
        drifted=False,
        underpowered=False,
        smallest_detectable=None if detectable is None else detectable / scale,
        num_reference=num_items,
        num_current=num_items,
        details=f"mean {before.mean():.4g} -> {after.mean():.4g}",
        bars=number_bars(before, after),
    )
