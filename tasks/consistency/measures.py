"""What is compared between replicas, read from samples: who made each, and its accuracy, length, answer, likelihood.

Owns reading columns; must not test anything. A column that is absent is unknown, never an error.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.arrays import FloatArray, IntArray
from schemas.consistency import Measure, WorkerName
from schemas.states import Verdict
from tasks.metrics.columns import IS_SCORED, VERDICT_CODES, Coded, code_text, read_verdicts

MEASURES: tuple[Measure, ...] = ("accuracy", "length", "mean_logprob", "no_answer_rate")
RATES: frozenset[Measure] = frozenset({"accuracy", "no_answer_rate"})
"""Measures in [0, 1] for each sample; the others are compared by rank, as their tails are heavy."""
_REPLICA_BITS: Final = 32
_NUMBERS: Final[dict[Measure, str]] = {"length": "num_completion_tokens", "mean_logprob": "mean_logprob"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSamples:
    """Samples that some replica made; arrays of shape `(num_samples,)`."""

    workers: tuple[WorkerName, ...]
    """By attempt, then number."""
    worker: IntArray
    """Index into `workers`."""
    item: IntArray
    """Index into `item_ids`; by prompt where items are not named, and without either each sample its own."""
    item_ids: list[str]
    """Names of the items; empty where each sample is its own."""
    prompt: IntArray | None
    """Index into `prompt_hashes`, -1 where null; None where the column is absent."""
    prompt_hashes: list[str]
    """The distinct prompts."""
    values: dict[Measure, FloatArray]
    """The known measures; NaN for a sample without one."""


def read_samples(samples: pa.Table) -> ReplicaSamples | None:
    """Return what is known of `samples` (columns of SAMPLES, all or some); None when nobody is named as their maker.

    Raises:
        DistributedEvaluationError: a verdict that does not exist.
    """
    if "replica" not in samples.column_names:
        return None
    made = samples.filter(pc.is_valid(samples.column("replica")))
    workers, worker = _workers(made)
    if not workers:
        return None
    prompts = code_text(made, "prompt_hash") if "prompt_hash" in made.column_names else None
    if "item_id" in made.column_names:
        items = code_text(made, "item_id")
    else:  # repeats of one item share their prompt
        items = prompts or Coded(np.arange(made.num_rows), [])
    return ReplicaSamples(
        workers=workers,
        worker=worker,
        item=items.codes,
        item_ids=items.values,
        prompt=None if prompts is None else prompts.codes,
        prompt_hashes=[] if prompts is None else prompts.values,
        values=_values(made),
    )


def _workers(made: pa.Table) -> tuple[tuple[WorkerName, ...], IntArray]:
    replicas = made.column("replica").cast(pa.int64()).to_numpy()
    attempts = np.full(len(replicas), -1)
    if "attempt" in made.column_names:
        attempts = made.column("attempt").cast(pa.int64()).fill_null(pa.scalar(-1, pa.int64())).to_numpy()
    makers, worker = np.unique((attempts << _REPLICA_BITS) + replicas, return_inverse=True)
    pairs = zip((makers >> _REPLICA_BITS).tolist(), (makers & (1 << _REPLICA_BITS) - 1).tolist(), strict=True)
    names = tuple(WorkerName(replica=replica, attempt=None if attempt < 0 else attempt) for attempt, replica in pairs)
    return names, worker.astype(np.int64)


def _values(made: pa.Table) -> dict[Measure, FloatArray]:
    values: dict[Measure, FloatArray] = {}
    score = _numbers(made, "score")
    verdict = read_verdicts(made)
    if verdict is not None:
        is_scored = IS_SCORED[verdict]
        is_correct = (verdict == VERDICT_CODES[Verdict.CORRECT]).astype(np.float64)
        values["accuracy"] = np.where(is_scored, is_correct, np.nan)
        unanswered = (verdict == VERDICT_CODES[Verdict.NO_ANSWER]).astype(np.float64)
        values["no_answer_rate"] = np.where(is_scored, unanswered, np.nan)
    elif score is not None:
        values["accuracy"] = np.where(np.isnan(score), np.nan, score >= 1)
    if verdict is None and "answer" in made.column_names:
        values["no_answer_rate"] = pc.is_null(made.column("answer")).to_numpy().astype(np.float64)
    for measure, column in _NUMBERS.items():
        numbers = _numbers(made, column)
        if numbers is not None:
            values[measure] = numbers
    return {
        measure: values[measure] for measure in MEASURES if measure in values and not np.isnan(values[measure]).all()
    }


def _numbers(made: pa.Table, name: str) -> FloatArray | None:
    if name not in made.column_names:
        return None
    numbers = made.column(name).cast(pa.float64()).to_numpy().astype(np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)
