"""Samples of several replicas, made up as real ones look: items of their own difficulty, repeats alike, long tails."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.consistency import ConsistencyReport
from schemas.tables import SAMPLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """Replicas of `num_items` items each; one of them may be bad."""

    num_replicas: int
    num_items: int
    n_samples: int = 1
    accuracy: float = 0.6
    bad: int | None = None
    """The replica with the faults below."""
    accuracy_lost: float = 0.0
    length_factor: float = 1.0
    logprob_shift: float = 0.0


def draw_samples(shards: Shards, rng: np.random.Generator) -> pa.Table:
    """Return samples; items are dealt in turn, as the planner does."""
    num_items = shards.num_replicas * shards.num_items
    item = np.repeat(np.arange(num_items), shards.n_samples)
    replica = item % shards.num_replicas
    is_bad = replica == (-1 if shards.bad is None else shards.bad)
    chance = rng.beta(shards.accuracy + 1e-9, 1 - shards.accuracy + 1e-9, num_items)[item]
    is_correct = rng.random(len(item)) < chance - shards.accuracy_lost * is_bad
    is_silent = ~is_correct & (rng.random(len(item)) < 0.05)
    length = np.exp(rng.normal(4.5, 0.8, num_items)[item] + rng.normal(0, 0.5, len(item)))
    length *= np.where(is_bad, shards.length_factor, 1.0)
    logprob = -np.exp(rng.normal(-1.5, 0.5, num_items)[item] + rng.normal(0, 0.3, len(item)))
    columns: dict[str, Any] = {
        "item_id": [f"item-{number}" for number in item],
        "repeat": np.tile(np.arange(shards.n_samples), num_items),
        "prompt_hash": [f"{number:032x}" for number in item],
        "replica": replica,
        "attempt": np.ones(len(item)),
        "verdict": np.where(is_correct, "correct", np.where(is_silent, "no_answer", "wrong")),
        "score": is_correct.astype(np.float64),
        "num_completion_tokens": np.clip(length, 1, 1024).astype(np.int64),
        "mean_logprob": logprob + shards.logprob_shift * is_bad,
    }
    fields = [SAMPLES.field(name) for name in columns]
    arrays = [pa.array(column).cast(field.type) for column, field in zip(columns.values(), fields, strict=True)]
    return pa.table(arrays, schema=pa.schema(fields))


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    """Return `table` with other values in one column."""
    field = table.schema.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(values, field.type))


def outcomes(report: ConsistencyReport) -> dict[str, str]:
    """Outcome by check."""
    return {check.check: check.outcome for check in report.checks}


def blamed(report: ConsistencyReport) -> list[int]:
    """Replicas against which something speaks."""
    return [replica.number for replica in report.replicas if replica.problems]
