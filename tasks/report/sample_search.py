"""The samples of published runs, found by what they are and by their words; no other columns are read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from infra.arrays import FloatArray
from infra.store import Store
from schemas.errors import StoreError
from schemas.states import Verdict
from schemas.store import PublishedRun
from tasks.report.series import Overview, Series

BECAME_RIGHT: Final = "became right"
BECAME_WRONG: Final = "became wrong"
PAGE_SIZE: Final = 200
"""Samples of an answer; more are found by a narrower question."""
_KEYS: Final = ("item_id", "repeat")
_LIGHT: Final = (*_KEYS, "verdict", "score")
_SEARCHED: Final = ("prompt", "completion", "answer", "gold", "item_id")
SHOWN_COLUMNS: Final = (
    "run_id",
    "checkpoint",
    "global_step",
    "dataset",
    *_LIGHT,
    "finish_reason",
    "num_completion_tokens",
    "subsets",
    "replica",
    "prompt",
    "completion",
    "gold",
    "answer",
    "error",
)
"""What a reader sees of a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleQuery:
    """Which samples are wanted; an empty text asks for nothing."""

    dataset: str = ""
    """Name of a dataset."""
    series: str = ""
    """Name of a line."""
    checkpoint: str = ""
    """Step or name of a checkpoint as `name_checkpoint` gives it; empty: the latest of each line."""
    verdict: str = ""
    """One of the verdicts."""
    flip: str = ""
    """What became of the answer since the checkpoint before."""
    words: str = ""
    """Letters that prompt, completion, answer, reference or item_id contain, in either case."""


def name_checkpoint(run: PublishedRun) -> str:
    """Return what a reader calls the checkpoint of a run: its step, else its name."""
    return run.checkpoint if run.global_step is None else f"step {run.global_step}"


def describe_choices(overview: Overview, *, latest_only: bool) -> dict[str, Any]:
    """Return what a reader can choose from: lines with their checkpoints, verdicts and flips."""
    options = [
        {"dataset": series.dataset, "series": series.name, "checkpoint": name_checkpoint(run)}
        for series in overview.series
        for run in ((series.latest,) if latest_only else reversed(series.runs))
    ]
    return {"options": options, "verdict": [each.value for each in Verdict], "flip": [BECAME_RIGHT, BECAME_WRONG]}


def find_samples(store: Store, overview: Overview, query: SampleQuery) -> dict[str, Any]:
    """Return the first samples of a query as `rows` and their number as `total`.

    Raises:
        StoreError: the store cannot be read.
    """
    rows: list[dict[str, Any]] = []
    total = 0
    for series, place in _places(overview, query):
        found = read_verdicts(store, series, place, words=query.words)
        wanted = np.ones(len(found), dtype=bool)
        for column, value in (("verdict", query.verdict), ("flip", query.flip)):
            if value:
                wanted &= np.array(found.column(column).to_pylist(), dtype=object) == value
        total += int(wanted.sum())
        first = found.take(np.flatnonzero(wanted)[: PAGE_SIZE - len(rows)])
        common = {"run_id": series.runs[place].run_id, "series": series.name}
        rows += [common | row for row in first.to_pylist()]
    return {"rows": rows, "total": total}


def read_sample(store: Store, run_id: str, item_id: str, repeat: int) -> dict[str, Any]:
    """Return one sample whole.

    Raises:
        StoreError: there is none, or the store cannot be read.
    """
    wanted = (pads.field("item_id") == item_id) & (pads.field("repeat") == repeat)
    table = store.table("samples", run_id=run_id).to_table(columns=list(SHOWN_COLUMNS), filter=wanted)
    if not len(table):
        raise StoreError(f"run {run_id} has no sample of item {item_id!r}, repeat {repeat}")
    return to_shown(table.to_pylist(maps_as_pydicts="strict")[0])


def to_shown(sample: dict[str, Any]) -> dict[str, Any]:
    """Return a row of `samples` as a reader sees it."""
    return sample | {"subsets": [f"{key}={value}" for key, value in sample["subsets"].items()]}


def read_verdicts(store: Store, series: Series, place: int, *, words: str = "") -> pa.Table:
    """Return item_id, repeat, verdict, score and flip of the samples of one run of a line, in order of the first two.

    `flip` is empty where the run before scored the same problem and repeat alike, or did not score it.
    """
    table = _read(store, series.runs[place].run_id, words)
    change = np.zeros(len(table))
    if place > 0:
        before = _read(store, series.runs[place - 1].run_id, "").select([*_KEYS, "score"])
        before = before.rename_columns([*_KEYS, "before"])
        table = _in_order(table.join(before, keys=list(_KEYS), join_type="left outer"))
        change = _to_numpy(table, "score") - _to_numpy(table, "before")  # NaN where one has no score
    flips = np.select([change > 0, change < 0], [BECAME_RIGHT, BECAME_WRONG], "")
    return table.select(list(_LIGHT)).append_column("flip", pa.array(flips, pa.string()))


def _to_numpy(table: pa.Table, column: str) -> FloatArray:
    return table.column(column).to_numpy(zero_copy_only=False).astype(np.float64)


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(key, "ascending") for key in _KEYS])


def _read(store: Store, run_id: str, words: str) -> pa.Table:
    condition: pc.Expression | None = None
    for column in _SEARCHED if words else ():
        found = pc.match_substring(pads.field(column), words, ignore_case=True)
        condition = found if condition is None else condition | found
    return _in_order(store.table("samples", run_id=run_id).to_table(columns=list(_LIGHT), filter=condition))


def _places(overview: Overview, query: SampleQuery) -> Iterator[tuple[Series, int]]:
    for series in overview.series:
        if query.dataset not in ("", series.dataset) or query.series not in ("", series.name):
            continue
        if not query.checkpoint:
            yield series, len(series.runs) - 1
            continue
        for place, run in enumerate(series.runs):
            if name_checkpoint(run) == query.checkpoint:
                yield series, place
