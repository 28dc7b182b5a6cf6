"""Grade a run's samples while its workers still make them, and write the grades once they are done."""

import time
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.arrays import IntArray
from infra.files.atomic import write_table_atomically
from schemas.errors import StoreError
from schemas.grading import Grade, GradingConfig
from schemas.inference import Plan
from schemas.states import FinishReason
from schemas.tables import GRADE_SCHEMA
from tasks.grading.grader import Grader, GradeRequest
from tasks.grading.reward_function import describe_call
from tasks.inference.exchange.journal import JournalFollower, in_batches
from tasks.inference.runs.record import RunRecord

_POLL_S: Final = 0.25
"""Least seconds between looks at the journals: grading ends that much after generation at most."""
_JOURNALS_PER_S: Final = 400.0
"""Journals that are looked into per second, each some 0.1 ms of CPU: a thousand replicas wait longer for a look."""
_BATCH_ROWS: Final = 4096
"""Enough to keep all grading processes busy, few enough for memory."""
QUESTION_COLUMNS: Final = ("item_id", "prompt", "gold", "grader", "grader_data")
"""What grading needs of the prompts; a reward function also gets their `token_ids`."""


class GradeBook:
    """Grades of a run as they come, the first one of each sample; kept as Arrow chunks."""

    def __init__(self, plan: Plan, prompts: pa.Table, grader: Grader) -> None:
        """`prompts` has the columns `QUESTION_COLUMNS` of PROMPT_SCHEMA, and token_ids for a reward function."""
        self._grader = grader
        self._n_samples = plan.n_samples
        # in one piece, or every `take` would copy all of it
        self._prompts = prompts.combine_chunks()
        self._rows: dict[object, int] = {name: row for row, name in enumerate(prompts.column("item_id").to_pylist())}
        self._seen = np.zeros(prompts.num_rows * plan.n_samples, np.bool_)
        self._chunks: list[pa.Table] = []

    def grade(self, samples: pa.Table) -> None:
        """Grade the samples (JOURNAL_SCHEMA) that are new.

        Raises:
            StoreError: a sample was never planned.
        """
        rows = self._claim(samples)
        new = samples.filter(pa.array(rows >= 0))
        if new.num_rows:
            questions = self._prompts.take(rows[rows >= 0])
            self._chunks.append(_to_table(new, self._grader.grade(_requests(new, questions))))

    def table(self) -> pa.Table:
        """Return all grades so far, GRADE_SCHEMA."""
        return pa.concat_tables(self._chunks) if self._chunks else GRADE_SCHEMA.empty_table()

    def _claim(self, samples: pa.Table) -> IntArray:
        """Return the row of each sample's prompt; -1 for a sample that has a grade, or stands here twice."""
        rows = np.array([self._rows.get(name, -1) for name in samples.column("item_id").to_pylist()], np.int64)
        repeats = samples.column("repeat").to_numpy().astype(np.int64)
        if np.any((rows < 0) | (repeats < 0) | (repeats >= self._n_samples)):
            raise StoreError(
                "a journal holds a sample that was never planned: the folder was mixed with another run's; remove it"
            )
        slots = rows * self._n_samples + repeats
        is_first = np.zeros(len(slots), np.bool_)
        is_first[np.unique(slots, return_index=True)[1]] = True
        is_new = is_first & ~self._seen[slots]
        self._seen[slots] = True
        return np.where(is_new, rows, -1)


def grade_run(
    record: RunRecord, config: GradingConfig, *, function: str | None = None, is_generating: Callable[[], bool]
) -> None:
    """Grade everything in the journals until `is_generating` says no; then write grades.parquet.

    `function`: dotted path of the user's reward function, where one grades.

    Raises:
        StoreError: a journal is damaged, or the grades cannot be written.
    """
    followers: dict[Path, JournalFollower] = {}
    columns = [*QUESTION_COLUMNS, *(["token_ids"] if function else [])]
    with Grader(config, function=function) as grader:
        prompts = pq.read_table(record.run.prompts_path, columns=columns)
        book = GradeBook(record.plan, prompts, grader)
        while True:
            goes_on = is_generating()  # asked before reading: what is journalled afterwards is read by the next look
            # a worker that was lost has a successor with a folder of its own
            new = [folder for folder in record.run.replica_dirs() if folder not in followers]
            followers |= {folder: JournalFollower(folder) for folder in new}
            tables = chain.from_iterable(follower.new_tables() for follower in followers.values())
            for batch in in_batches(tables, _BATCH_ROWS):
                book.grade(batch)
            if not goes_on:
                break
            time.sleep(max(_POLL_S, len(followers) / _JOURNALS_PER_S))
        write_table_atomically(record.run.grades_path, book.table())


def _requests(samples: pa.Table, questions: pa.Table) -> list[GradeRequest]:
    """Return what to grade of equally long tables: samples and the prompts that they answer."""
    opened = pc.ends_with(pc.utf8_rtrim_whitespace(questions.column("prompt")), "<think>")
    rows = zip(
        *(samples.column(name).to_pylist() for name in ("completion", "finish_reason", "error")),
        *(questions.column(name).to_pylist() for name in ("gold", "grader")),
        _grader_data(samples, questions),
        opened.to_pylist(),
        strict=True,
    )
    return [
        GradeRequest(
            completion=completion if error is None else None,
            gold=gold,
            finish_reason=None if finish_reason is None else FinishReason(finish_reason),
            grader=grader,
            grader_data=grader_data,
            starts_in_reasoning=starts_in_reasoning,
        )
        for completion, finish_reason, error, gold, grader, grader_data, starts_in_reasoning in rows
    ]


def _grader_data(samples: pa.Table, questions: pa.Table) -> list[str]:
    """Return what each sample's grader needs: what the item brings, or the whole call of a reward function."""
    data: list[Any] = questions.column("grader_data").to_pylist()
    if "function" not in questions.column("grader").unique().to_pylist():  # it grades all of a run, or none
        return data
    columns = (
        questions.column("prompt").to_pylist(),
        samples.column("completion").to_pylist(),
        questions.column("token_ids").to_pylist(),
        samples.column("completion_ids").to_pylist(),
        data,
    )
    calls = cast("Iterable[tuple[str, str, list[int], list[int] | None, str]]", zip(*columns, strict=True))
    return [describe_call(*call) for call in calls]


def _to_table(samples: pa.Table, grades: list[Grade]) -> pa.Table:
    columns: dict[str, Any] = {name: samples.column(name) for name in ("item_id", "repeat", "replica", "attempt")}
    columns |= {
        "verdict": [grade.verdict.value for grade in grades],
        "answer": [grade.answer for grade in grades],
        "score": [grade.score for grade in grades],
        "reason": [grade.reason for grade in grades],
        "reward": [grade.reward for grade in grades],
    }
    return pa.table(columns, schema=GRADE_SCHEMA)
