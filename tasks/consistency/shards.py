"""The checks over what replicas made: their prompts, each measure's largest residual, and the plain rule.

Owns what a check says; the statistics are in residuals.py.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from infra.arrays import FloatArray, IntArray
from schemas.consistency import ConsistencyCheck, ConsistencyConfig, Measure, WorkerName
from tasks.consistency.measures import RATES, ReplicaSamples
from tasks.consistency.residuals import (
    ItemTotals,
    confirm,
    detectable_differences,
    normal_bound,
    rank_scores,
    standardised_residuals,
    total_by_item,
)
from tasks.metrics.estimators import sums

_UNITS: Final[dict[Measure, str]] = {
    "accuracy": "",
    "length": " tokens",
    "no_answer_rate": "",
    "mean_logprob": " nats",
}
_MAX_NAMED: Final = 4
PROMPTS: Final = "prompts"
PLAIN_RULE: Final = "accuracy_absolute"
"""Name of the check by the plain rule."""
_ITEM, _PROMPT, _WORKER = range(3)
_SEED: Final = 20_240_501
"""The permutations are the same each time: the same samples get the same verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureComparison:
    """One measure compared over all workers; arrays of shape `(num_workers,)`, NaN where unknown."""

    measure: Measure
    means: FloatArray
    residuals: FloatArray
    check: ConsistencyCheck


class _Found(NamedTuple):
    suspects: list[int]
    p_value: float | None


def compare_measures(read: ReplicaSamples, config: ConsistencyConfig) -> list[MeasureComparison]:
    """Return the comparison of each known measure by the residual rule.

    Workers are compared within their attempt: what a killed attempt left for the next one is longer than the rest.
    """
    strata = _strata(read.workers)
    num_tests = max(1, len(strata) * len(read.values))
    bound = normal_bound(config.alpha, sum(map(len, strata)) * len(read.values))
    return [
        _compare_measure(read, measure, strata, bound=bound, alpha=config.alpha / num_tests, config=config)
        for measure in read.values
    ]


def plain_rule(read: ReplicaSamples, accuracy: FloatArray, config: ConsistencyConfig) -> ConsistencyCheck:
    """Return the comparison by the plain rule: no worker's accuracy further than the tolerance from that of all."""
    values = read.values["accuracy"]
    distance = np.abs(accuracy - np.nanmean(values))
    far = np.flatnonzero(distance > config.tolerance + 1e-12)
    worst = float(np.nanmax(distance))
    decides = config.rule == "absolute"
    if len(read.workers) < 2:
        outcome, message = "cannot_tell", "one replica: its accuracy is the mean"
    elif len(far):
        outcome = "violated"
        message = (
            f"accuracy of {_names(read.workers, far)} is {worst:.3f} from the mean, beyond consistency.tolerance "
            f"{config.tolerance:g}" + ("" if decides else " (shown only: chance does that too)")
        )
    else:
        outcome, message = "passed", f"no accuracy is further than {worst:.3f} from the mean"
    return ConsistencyCheck(
        check=PLAIN_RULE,
        outcome=outcome,
        decides=decides,
        suspects=tuple(read.workers[index] for index in far),
        statistic=worst,
        threshold=config.tolerance,
        message=message,
    )


def compare_prompts(read: ReplicaSamples, planned: Mapping[str, str] | None) -> list[ConsistencyCheck]:
    """Return whether each item was answered from one prompt, the planned one where that is known; [] when unknown."""
    if read.prompt is None:
        return []
    suspects, wrong = _blame_prompts(read, read.prompt, planned)
    if not suspects:
        message = "every item was answered from " + ("one prompt" if planned is None else "its planned prompt")
        return [ConsistencyCheck(check=PROMPTS, outcome="passed", decides=True, message=message)]
    message = (
        f"{_names(read.workers, suspects)} answered {len(np.unique(wrong[:, _ITEM]))} items from another prompt, such "
        f"as item {read.item_ids[wrong[0, _ITEM]]!r} (prompt_hash {read.prompt_hashes[wrong[0, _PROMPT]]}): compare "
        "the tokenizers and chat templates of the replicas"
    )
    return [
        ConsistencyCheck(
            check=PROMPTS,
            outcome="violated",
            decides=True,
            suspects=tuple(read.workers[index] for index in suspects),
            message=message,
        )
    ]


def _blame_prompts(
    read: ReplicaSamples, prompt: IntArray, planned: Mapping[str, str] | None
) -> tuple[list[int], IntArray]:
    """Return who answered from wrong prompts, and what: rows of item, prompt and worker.

    Without a plan, the workers are taken out, the most blamed first, until each item has one prompt; where two are
    blamed alike, nobody can say who is right.
    """
    rows = np.column_stack([read.item, prompt, read.worker])[prompt >= 0]
    if planned is not None:
        code_of = {text: code for code, text in enumerate(read.prompt_hashes)}
        right = np.array([code_of.get(planned.get(item_id, ""), -1) for item_id in read.item_ids], np.int64)
        wrong = rows[rows[:, _PROMPT] != right[rows[:, _ITEM]]]
        return np.unique(wrong[:, _WORKER]).tolist(), wrong
    rows = np.unique(rows, axis=0)
    suspects: list[int] = []
    left = rows
    while len(left := _conflicting(left)):
        blame = _blame(left, len(read.workers))
        worst = np.flatnonzero(blame >= blame.max() - 1e-9)
        suspects += worst.tolist()
        left = left[~np.isin(left[:, _WORKER], worst)]
    return suspects, rows[np.isin(rows[:, _WORKER], suspects) & np.isin(rows[:, _ITEM], _conflicting(rows)[:, _ITEM])]


def _conflicting(rows: IntArray) -> IntArray:
    """Return the rows of items that have several prompts."""
    pairs = np.unique(rows[:, : _PROMPT + 1], axis=0)
    items, num_prompts = np.unique(pairs[:, _ITEM], return_counts=True)
    return rows[np.isin(rows[:, _ITEM], items[num_prompts > 1])]


def _blame(rows: IntArray, num_workers: int) -> FloatArray:
    """Return per worker the items for which it used a prompt that fewer workers used, twice, and its ties, once."""
    _, pair, pair_size = np.unique(rows[:, : _PROMPT + 1], axis=0, return_inverse=True, return_counts=True)
    mine = pair_size[pair.reshape(-1)]
    largest = np.zeros(int(rows[:, _ITEM].max()) + 1, np.int64)
    np.maximum.at(largest, rows[:, _ITEM], mine)
    num_in_largest = np.bincount(rows[:, _ITEM], mine == largest[rows[:, _ITEM]])
    is_minority = mine < largest[rows[:, _ITEM]]
    is_tied = ~is_minority & (num_in_largest[rows[:, _ITEM]] > mine)
    half_items = 2 * is_minority.astype(np.float64) + is_tied
    return sums(rows[:, _WORKER], half_items, num_workers)


def worker_means(values: FloatArray, read: ReplicaSamples) -> FloatArray:
    """Return the mean of the known values of each worker; NaN without any."""
    known, num_workers = ~np.isnan(values), len(read.workers)
    with np.errstate(invalid="ignore"):
        return sums(read.worker[known], values[known], num_workers) / np.bincount(
            read.worker[known], minlength=num_workers
        )


def _strata(workers: Sequence[WorkerName]) -> list[IntArray]:
    """Return the workers of each attempt that has several."""
    by_attempt: dict[int | None, list[int]] = defaultdict(list)
    for index, worker in enumerate(workers):
        by_attempt[worker.attempt].append(index)
    return [np.array(stratum, np.int64) for stratum in by_attempt.values() if len(stratum) > 1]


def _compare_measure(
    read: ReplicaSamples,
    measure: Measure,
    strata: Sequence[IntArray],
    *,
    bound: float,
    alpha: float,
    config: ConsistencyConfig,
) -> MeasureComparison:
    values, is_rate = read.values[measure], measure in RATES
    residuals, detectable, blind = (np.full(len(read.workers), np.nan) for _ in range(3))
    suspects: list[int] = []
    p_values: list[float] = []
    for stratum in strata:
        raw = _units(values, read, stratum)
        units = raw if is_rate else _units(rank_scores(values), read, stratum)
        residuals[stratum] = standardised_residuals(units)
        detectable[stratum] = detectable_differences(raw, bound, is_rate=is_rate)
        blind[stratum] = detectable_differences(units, bound, is_rate=is_rate)
        found = _find_suspects(units, bound, alpha)
        suspects += [int(stratum[index]) for index in found.suspects]
        p_values += [] if found.p_value is None else [found.p_value]
    means = worker_means(values, read)
    typical = _typical(blind, read)
    if suspects:
        outcome, message = "violated", _describe(read, measure, means, residuals, suspects)
    elif typical is None:
        outcome, message = "cannot_tell", f"{measure}: nothing to compare with"
    else:
        outcome = "passed" if typical <= config.max_undetected else "cannot_tell"
        seen = _typical(detectable, read) or 0.0
        message = f"{measure}: a difference of {seen:.3g}{_UNITS[measure]} would have been seen"
    check = ConsistencyCheck(
        check=measure,
        outcome=outcome,
        decides=config.rule == "residual",
        suspects=tuple(read.workers[index] for index in suspects),
        statistic=None if np.isnan(residuals).all() else float(np.nanmax(np.abs(residuals))),
        threshold=bound if strata else None,
        p_value=min(p_values, default=None),
        detectable=_typical(detectable, read),
        message=message,
    )
    return MeasureComparison(measure=measure, means=means, residuals=residuals, check=check)


def _units(scores: FloatArray, read: ReplicaSamples, stratum: IntArray) -> ItemTotals:
    place = np.full(len(read.workers), -1)
    place[stratum] = np.arange(len(stratum))
    worker = place[read.worker]
    return total_by_item(scores[worker >= 0], worker[worker >= 0], read.item[worker >= 0], len(stratum))


def _find_suspects(units: ItemTotals, bound: float, alpha: float) -> _Found:
    """Return the workers beyond the bound, the worst first; each is taken out before the others are judged."""
    suspects: list[int] = []
    p_values: list[float] = []
    rng = np.random.default_rng(_SEED)
    while True:
        residuals = np.nan_to_num(np.abs(standardised_residuals(units)))
        if residuals.max(initial=0.0) <= bound:
            break
        p_value = confirm(units, alpha=alpha, rng=rng)
        if not suspects:
            p_values.append(p_value)
        if p_value > alpha:
            break
        present = np.unique(units.worker)
        if len(present) == 2:  # two against each other: nobody can say which
            suspects += [int(index) for index in present]
            break
        worst = int(residuals.argmax())
        suspects.append(worst)
        units = units.without(worst)
    return _Found(suspects, min(p_values, default=None))


def _describe(
    read: ReplicaSamples, measure: Measure, means: FloatArray, residuals: FloatArray, suspects: Sequence[int]
) -> str:
    worst = max(suspects, key=lambda index: abs(residuals[index]))
    rest = np.nanmean(read.values[measure][read.worker != worst])
    return (
        f"{measure} of {_names(read.workers, suspects)} differs beyond chance: {means[worst]:.4g}{_UNITS[measure]} "
        f"against {rest:.4g} of the others, {abs(residuals[worst]):.1f} standard deviations"
    )


def _typical(by_worker: FloatArray, read: ReplicaSamples) -> float | None:
    """Return the value of which half of the samples have at most that; None when no worker has one."""
    weights = np.bincount(read.worker, minlength=len(read.workers)).astype(np.float64)
    if np.isnan(by_worker).all():
        return None
    order = np.argsort(by_worker)  # unknown ones last
    reached = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    value = float(by_worker[order[int(reached)]])
    return None if np.isnan(value) else value


def _names(workers: Sequence[WorkerName], indices: Sequence[int] | IntArray) -> str:
    names = [str(workers[int(index)]) for index in indices]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
