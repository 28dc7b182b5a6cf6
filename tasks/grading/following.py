"""Grade a run's samples while its workers still make them, and write the grades once they are done."""

import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from infra.atomic import write_table_atomically
from schemas.grading import Grade, GradingConfig
from schemas.inference import Plan, SampleRecord
from schemas.tables import GRADE_SCHEMA
from tasks.grading.grader import Grader, GradeRequest
from tasks.inference.journal import JournalFollower
from tasks.inference.session import RunSession

_POLL_S: Final = 0.25
"""Seconds between looks at the journals: grading ends that much after generation at most."""


class _Question(NamedTuple):
    """What grading needs of an item."""

    gold: str
    grader: str
    grader_data: str
    starts_in_reasoning: bool


class GradeBook:
    """Grades of a run as they come, the first one of each sample; kept as Arrow chunks."""

    def __init__(self, plan: Plan, prompts: pa.Table, grader: Grader) -> None:
        """`prompts` is PROMPT_SCHEMA."""
        self._grader = grader
        self._n_samples = plan.n_samples
        self._index = {item.item_id: number for number, item in enumerate(plan.items)}
        self._seen = bytearray(len(plan.items) * plan.n_samples)
        self._questions = _read_questions(prompts)
        self._chunks: list[pa.Table] = []

    def grade(self, records: Iterable[SampleRecord]) -> int:
        """Grade the records that are new; return how many those were."""
        new = [record for record in records if self._claim(record)]
        if new:
            grades = self._grader.grade([self._request(record) for record in new])
            self._chunks.append(_to_table(new, grades))
        return len(new)

    def table(self) -> pa.Table:
        """Return all grades so far, GRADE_SCHEMA."""
        return pa.concat_tables(self._chunks) if self._chunks else GRADE_SCHEMA.empty_table()

    def _claim(self, record: SampleRecord) -> bool:
        slot = self._index[record.item_id] * self._n_samples + record.repeat
        is_new = not self._seen[slot]
        self._seen[slot] = 1
        return is_new

    def _request(self, record: SampleRecord) -> GradeRequest:
        question = self._questions[record.item_id]
        return GradeRequest(
            completion=record.completion if record.error is None else None,
            gold=question.gold,
            finish_reason=record.finish_reason,
            grader="reasoning_gym" if question.grader == "reasoning_gym" else "math",
            grader_data=question.grader_data,
            starts_in_reasoning=question.starts_in_reasoning,
        )


def grade_run(session: RunSession, config: GradingConfig, *, is_generating: Callable[[], bool]) -> None:
    """Grade everything in the journals until `is_generating` says no; then write grades.parquet.

    Raises:
        StoreError: a journal is damaged, or the grades cannot be written.
    """
    folders = [folder for folder in session.run.replica_dirs() if folder.parent.name != f"{session.attempt:04d}"]
    folders += [spec.output_dir for spec in session.specs]
    followers = [JournalFollower(folder) for folder in folders]
    with Grader(config) as grader:
        book = GradeBook(session.plan, pq.read_table(session.run.prompts_path), grader)
        while True:
            goes_on = is_generating()  # asked before reading: what is journalled afterwards is read by the next look
            num_new = sum(book.grade(follower.read_new()) for follower in followers)
            if not num_new and not goes_on:
                break
            if not num_new:
                time.sleep(_POLL_S)
        write_table_atomically(session.run.grades_path, book.table())


def _read_questions(prompts: pa.Table) -> dict[str, _Question]:
    names = ["item_id", "gold", "grader", "grader_data", "prompt"]
    rows: list[dict[str, str]] = prompts.select(names).to_pylist()
    return {
        row["item_id"]: _Question(
            row["gold"], row["grader"], row["grader_data"], row["prompt"].rstrip().endswith("<think>")
        )
        for row in rows
    }


def _to_table(records: list[SampleRecord], grades: list[Grade]) -> pa.Table:
    rows = [
        {
            "item_id": record.item_id,
            "repeat": record.repeat,
            "replica": record.replica,
            "attempt": record.attempt,
            "verdict": grade.verdict.value,
            "answer": grade.answer,
            "score": grade.score,
            "reason": grade.reason,
        }
        for record, grade in zip(records, grades, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=GRADE_SCHEMA)
