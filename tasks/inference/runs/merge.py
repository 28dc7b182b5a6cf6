"""The merge certificate: join what the workers journalled with plan, prompts and grades into the samples of a run.

Every planned (item, repeat) appears exactly once, made from the planned prompt, or nothing is written. Works batch by
batch, so that memory is bounded by the plan and one batch, not by the completions.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.arrays import IntArray
from infra.files.atomic import write_atomically
from infra.files.table_files import open_parquet_writer
from schemas.base import Model
from schemas.errors import MergeError
from schemas.identity import sample_seed
from schemas.inference import Plan
from schemas.run import RunIdentity
from schemas.states import Verdict
from schemas.tables import SAMPLES
from tasks.inference.exchange.journal import in_batches

AnyColumn: TypeAlias = "pa.ChunkedArray[Any] | pa.Array[Any]"

_GROUP_ROWS: Final = 8_192
"""Rows joined and written at once: of many small row groups the descriptions alone would fill a reader's memory."""
_MAX_NAMED: Final = 5
"""Missing samples that an error lists by name."""


class MergeCertificate(Model):
    """What was merged."""

    num_planned: int
    """Samples of the plan; as many rows were written."""
    num_refused: int
    """Rows of items that were refused before generation."""
    num_duplicates: int
    """Journalled samples of which another attempt's completion was graded and kept."""
    num_prompt_tokens: int
    """Tokens given over all samples."""
    num_completion_tokens: int
    """Tokens made over all samples."""


class SampleMerger:
    """Places journalled samples into the slots of a plan: slot = item index * n_samples + repeat."""

    def __init__(self, plan: Plan, prompts: pa.Table, grades: pa.Table) -> None:
        """Index plan, prompts (PROMPT_SCHEMA) and grades (GRADE_SCHEMA)."""
        self._plan = plan
        self._items = {item.item_id: number for number, item in enumerate(plan.items)}
        self._hashes = pa.array([item.prompt_hash for item in plan.items], pa.string())
        # in one piece, or every `take` would copy all of it
        self._prompts = prompts.combine_chunks()
        ids = pa.array(list(self._items), pa.string())
        self._prompt_rows = _lookup(ids, prompts.column("item_id"), "prompts.parquet")
        self._grades = grades.combine_chunks()
        self._grade_rows = np.full(len(plan.items) * plan.n_samples, -1, np.int64)
        for start in range(0, grades.num_rows, _GROUP_ROWS):
            slots = self._slots(grades.slice(start, _GROUP_ROWS))
            self._grade_rows[slots] = np.arange(start, start + len(slots))
        self._graded = _maker(grades)
        self._filled = np.zeros(len(plan.items) * plan.n_samples, np.bool_)
        self.num_duplicates = 0

    def rows(self, journal: Iterable[pa.Table], identity: RunIdentity) -> Iterator[pa.Table]:
        """Yield SAMPLES rows for each JOURNAL_SCHEMA table, then those of the refused items.

        Raises:
            MergeError: a sample is missing, not planned, ungraded or made from another prompt.
        """
        for table in journal:
            yield self._place(table, identity)
        self._require_all_filled()
        if self._plan.refused:
            yield self._refused_rows(identity)

    def _slots(self, table: pa.Table) -> IntArray:
        names: list[Any] = table.column("item_id").to_pylist()
        items = np.array([self._items.get(name, -1) for name in names], np.int64)
        repeats = table.column("repeat").to_numpy().astype(np.int64)
        if np.any((items < 0) | (repeats < 0) | (repeats >= self._plan.n_samples)):
            raise MergeError(
                "the journal holds a sample that was never planned: the folder was mixed with another run's; remove it"
            )
        return items * self._plan.n_samples + repeats

    def _place(self, table: pa.Table, identity: RunIdentity) -> pa.Table:
        slots = self._slots(table)
        grade_rows = self._grade_rows[slots]
        if np.any(grade_rows < 0):
            num_ungraded = int(np.count_nonzero(grade_rows < 0))
            raise MergeError(f"{num_ungraded} samples have no grade; run the same command again to grade them")
        # Of two completions of one sample, the one that was graded is kept.
        candidates = np.flatnonzero(~self._filled[slots] & (self._graded[grade_rows] == _maker(table)))
        keep = np.zeros(len(slots), np.bool_)
        keep[candidates[np.unique(slots[candidates], return_index=True)[1]]] = True
        self.num_duplicates += int(np.count_nonzero(~keep))
        table, slots = table.filter(pa.array(keep)), slots[keep]
        self._filled[slots] = True
        items = slots // self._plan.n_samples
        self._require_planned_prompts(table, items)
        prompts = self._prompts.take(self._prompt_rows[items])
        return _samples_table(identity, table, prompts, self._grades.take(grade_rows[keep]))

    def _require_planned_prompts(self, table: pa.Table, items: IntArray) -> None:
        equal = pc.equal(table.column("prompt_hash"), self._hashes.take(items))
        if not pc.all(equal, min_count=0).as_py():
            bad = table.filter(pc.invert(equal)).slice(0, 1).to_pylist()[0]
            raise MergeError(
                f"item {bad['item_id']!r} was answered by replica {bad['replica']} (attempt {bad['attempt']}) from "
                f"another prompt than planned (hash {bad['prompt_hash']}); compare the tokenizers of the replicas"
            )

    def _require_all_filled(self) -> None:
        missing = np.flatnonzero(~self._filled)
        if len(missing):
            keys = [
                (self._plan.items[slot // self._plan.n_samples].item_id, slot % self._plan.n_samples)
                for slot in missing
            ]
            named = ", ".join(f"{item_id}#{repeat}" for item_id, repeat in keys[:_MAX_NAMED])
            raise MergeError(
                f"{len(keys)} of {len(self._filled)} planned samples are missing, first {named}; "
                "run the same command again to generate them"
            )

    def _refused_rows(self, identity: RunIdentity) -> pa.Table:
        refused, repeats = self._plan.refused, self._plan.n_samples
        ids = pa.array([item.item_id for item in refused], pa.string())
        rows = np.repeat(_lookup(ids, self._prompts.column("item_id"), "prompts.parquet"), repeats)
        prompts = self._prompts.take(rows)
        numbers = list(range(repeats)) * len(refused)
        columns: dict[str, AnyColumn] = {
            "item_id": prompts.column("item_id"),
            "repeat": pa.array(numbers, pa.int32()),
            "prompt_hash": prompts.column("prompt_hash"),
            "num_prompt_tokens": pc.list_value_length(prompts.column("token_ids")),
            "seed": pa.array(
                [sample_seed(self._plan.seed, item.item_id, repeat) for item in refused for repeat in range(repeats)],
                pa.int64(),
            ),
            "error": pa.array([item.reason for item in refused for _ in range(repeats)], pa.string()),
        }
        grades = pa.table({"verdict": pa.array([Verdict.FAILED.value] * prompts.num_rows, pa.string())})
        return _samples_table(identity, pa.Table.from_pydict(columns), prompts, grades)


def merge_samples(
    merger: SampleMerger, journal: Iterable[pa.Table], *, plan: Plan, identity: RunIdentity, path: Path
) -> MergeCertificate:
    """Write the samples of a run to `path` (Parquet of SAMPLES), whole or not at all.

    Raises:
        MergeError: the certificate cannot be given; `path` is not touched.
        StoreError: the file cannot be written.
    """
    tokens = {"num_prompt_tokens": 0, "num_completion_tokens": 0}

    def write(file: BinaryIO) -> None:
        with open_parquet_writer(file, SAMPLES) as writer:
            for table in merger.rows(in_batches(journal, _GROUP_ROWS), identity):
                for name in tokens:
                    tokens[name] += pc.sum(table.column(name), min_count=0).as_py() or 0
                writer.write_table(table)

    write_atomically(path, write)
    return MergeCertificate(
        num_planned=plan.num_planned,
        num_refused=len(plan.refused) * plan.n_samples,
        num_duplicates=merger.num_duplicates,
        num_prompt_tokens=tokens["num_prompt_tokens"],
        num_completion_tokens=tokens["num_completion_tokens"],
    )


def _lookup(names: "pa.Array[pa.StringScalar]", column: "pa.ChunkedArray[pa.StringScalar]", where: str) -> IntArray:
    """Return the row of each name in `column`."""
    rows = pc.index_in(names, value_set=column.combine_chunks())
    if rows.null_count:
        raise MergeError(f"{where} lacks {rows.null_count} of the plan's items; remove the run folder to start anew")
    return rows.to_numpy(zero_copy_only=False).astype(np.int64)


def _maker(table: pa.Table) -> IntArray:
    """Return one number per row that says which worker of which attempt made it."""
    attempts = table.column("attempt").to_numpy().astype(np.int64)
    return (attempts << 32) + table.column("replica").to_numpy().astype(np.int64)


def _samples_table(identity: RunIdentity, generated: pa.Table, prompts: pa.Table, grades: pa.Table) -> pa.Table:
    """Return SAMPLES rows of equally long parts; what no part has is null."""
    constants = identity.model_dump()
    columns: list[AnyColumn] = []
    for field in SAMPLES:
        if field.name in constants:
            columns.append(pa.repeat(pa.scalar(constants[field.name], field.type), generated.num_rows))
        elif field.name == "error":
            columns.append(_errors(generated, grades))
        elif field.name == "completion_token_ids" and "completion_ids" in generated.column_names:
            columns.append(generated.column("completion_ids"))
        elif field.name == "completion" and "completion" in generated.column_names:
            # a request that the engine refused has no text, which is not an empty text
            made = pc.is_null(generated.column("error"))
            columns.append(pc.if_else(made, generated.column("completion"), pa.scalar(None, pa.string())))
        else:
            source = next((part for part in (generated, prompts, grades) if field.name in part.column_names), None)
            columns.append(
                pa.nulls(generated.num_rows, field.type)
                if source is None
                else source.column(field.name).cast(field.type)
            )
    return pa.Table.from_arrays(columns, schema=SAMPLES)


def _errors(generated: pa.Table, grades: pa.Table) -> AnyColumn:
    """Return why each row has no score: the generation's error, else the grader's reason."""
    error = generated.column("error").cast(pa.string())
    return pc.coalesce(error, grades.column("reason")) if "reason" in grades.column_names else error
