"""check-degeneration: whether the completions of a run are those of a working model.

Owns the shares and the file of the result; what a loop is, `repetition` says, since when, `news`.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from infra.files.atomic import write_text_atomically
from schemas.config import EvaluationConfig
from schemas.degeneration import DegenerationReport, DegenerationSign, SignName
from schemas.states import FinishReason, Verdict
from tasks.degeneration.news import find_onsets
from tasks.degeneration.repetition import ends_in_loop
from tasks.inference.runs.record import RunRecord
from tasks.metrics.estimators import wilson_interval

_COLUMNS: Final = ("item_id", "completion", "finish_reason", "verdict")
_MAX_SAMPLES: Final = 20_000
"""Completions looked at, spread evenly: they tell a share to half a point."""


class _Sample(NamedTuple):
    """What is looked at of one completion."""

    item_id: str
    completion: str
    is_cut: bool
    verdict: str | None


def check_degeneration(config: EvaluationConfig, record: RunRecord) -> DegenerationReport:
    """Return the shares of a run's completions that show a sign of degeneration; also written to degeneration.json.

    Raises:
        StoreError: earlier runs cannot be read, or the result not written.
    """
    settings = config.alerts.degeneration
    thresholds: dict[SignName, float | None] = {
        "stopped_by_length": settings.max_stopped_by_length,
        "without_answer": settings.max_without_answer,
        "repeating": settings.max_repeating,
    }
    samples = pq.read_table(record.run.samples_path, columns=list(_COLUMNS))
    signs = tuple(find_signs(samples, thresholds))
    raised: list[SignName] = [sign.name for sign in signs if sign.is_raised]
    onsets = find_onsets(config, record.identity, record.plan, raised) if raised else {}
    report = DegenerationReport(signs=tuple(sign.model_copy(update={"onset": onsets.get(sign.name)}) for sign in signs))
    write_text_atomically(record.run.degeneration_path, report.model_dump_json(indent=1) + "\n")
    return report


def find_signs(samples: pa.Table, thresholds: dict[SignName, float | None]) -> Iterator[DegenerationSign]:
    """Yield each sign that has a threshold, over the samples that have a completion.

    The interval is Wilson's with the number of items as the number of trials, for repeats of an item resemble each
    other.

    Args:
        samples: item_id, completion, finish_reason and verdict.
        thresholds: by sign; None where it is not looked for.
    """
    rows = list(_read(samples))
    num_items = len({row.item_id for row in rows})
    shown: dict[SignName, int] = {
        "stopped_by_length": sum(row.is_cut for row in rows),
        "without_answer": sum(row.verdict == Verdict.NO_ANSWER for row in rows),
        "repeating": sum(row.is_cut and ends_in_loop(row.completion) for row in rows),
    }
    for name, threshold in thresholds.items():
        if threshold is None:
            continue
        share = shown[name] / len(rows) if rows else None
        interval = None if share is None else wilson_interval(share * num_items, num_items)
        yield DegenerationSign(
            name=name,
            share=share,
            ci_low=interval.low if interval else None,
            num_items=num_items,
            threshold=threshold,
        )


def _read(samples: pa.Table) -> Iterator[_Sample]:
    step = max(1, -(-samples.num_rows // _MAX_SAMPLES))
    for batch in samples.take(pa.array(range(0, samples.num_rows, step), pa.int64())).to_batches():
        for row in batch.to_pylist():
            if row["completion"] is not None and row["finish_reason"] is not None:
                is_cut = row["finish_reason"] == FinishReason.LENGTH
                yield _Sample(str(row["item_id"]), str(row["completion"]), is_cut, row["verdict"])
