"""The grid of `milepost status`: each checkpoint of a root by each of its evaluations."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from schemas.errors import CheckpointError, StoreError
from schemas.watch import (
    CellState,
    EvaluationCell,
    EvaluationRecord,
    GivenUpEvaluation,
    LandedCheckpoint,
    WatchedCheckpoint,
    WatchedEvaluation,
    WatchStatus,
)
from tasks.alerts.delivery import describe_undelivered, read_undelivered
from tasks.alerts.ledger import alert_folder
from tasks.watching.evaluation_key import evaluation_name
from tasks.watching.observation import Observation
from tasks.watching.root import describe_unreadable, make_observer
from tasks.watching.selection import select_checkpoints
from tasks.watching.settling import Evaluation, settled_record

_Line = tuple[int, str]
"""Training step, -1 when unknown, and folder: what makes two rows of the grid one."""


def read_status(root: Path, evaluations: Sequence[Evaluation], *, now: datetime) -> WatchStatus:
    """Return how each evaluation of each checkpoint stands, the newest checkpoint last; changes nothing.

    Raises:
        CheckpointError: the root cannot be read.
        StoreError: what is kept of an evaluation cannot be read.
    """
    lines: dict[_Line, dict[str, EvaluationCell]] = {}
    digests: dict[_Line, str | None] = {}
    for evaluation in evaluations:
        landed = _read_landed(root, evaluation)
        try:
            seen = make_observer(root, evaluation).look({one.mark for one in landed if one.is_usable})
        except OSError as exc:
            raise CheckpointError(describe_unreadable(root, exc)) from exc
        wanted = {one.mark for one in select_checkpoints(landed, evaluation.config, now=now)}
        for one in landed:
            line = _line(one.position.global_step, one.path)
            lines.setdefault(line, {})[evaluation.folder.key] = _cell(evaluation, one, one.mark in wanted, now)
            digests[line] = one.weight_digest or digests.get(line)
        for line, cell in _unlanded(evaluation, seen):
            lines.setdefault(line, {})[evaluation.folder.key] = cell
    keys = [evaluation.folder.key for evaluation in evaluations]
    checkpoints = tuple(
        WatchedCheckpoint(
            path=Path(line[1]),
            global_step=None if line[0] < 0 else line[0],
            weight_digest=digests.get(line),
            cells=tuple(cells.get(key, EvaluationCell(evaluation=key, state="waiting")) for key in keys),
        )
        for line, cells in sorted(lines.items())
    )
    counts: Counter[CellState] = Counter(cell.state for one in checkpoints for cell in one.cells)
    columns = tuple(WatchedEvaluation(key=one.folder.key, name=evaluation_name(one.config)) for one in evaluations)
    folders = {alert_folder(evaluation.config.cluster.folder) for evaluation in evaluations}
    alerts = [describe_undelivered(each) for folder in sorted(folders) for each in read_undelivered(folder)]
    return WatchStatus(
        root=root,
        evaluations=columns,
        checkpoints=checkpoints,
        counts=dict(counts),
        undelivered_alerts=tuple(alerts),
    )


def list_given_up(evaluation: Evaluation, selected: Iterable[LandedCheckpoint]) -> Iterator[GivenUpEvaluation]:
    """Return those of the wanted checkpoints whose evaluation is given up.

    One that was removed since, or whose record cannot be read, is left out.
    """
    for landed in selected:
        try:
            record = settled_record(evaluation, landed)
        except StoreError:
            continue
        if record is not None and record.state == "failed" and landed.path.is_dir():
            yield GivenUpEvaluation(
                path=landed.path,
                global_step=landed.position.global_step,
                evaluation=evaluation_name(evaluation.config),
                reason=record.error or "",
                folder=evaluation.folder.result_folder(record.model_key),
            )


def _read_landed(root: Path, evaluation: Evaluation) -> list[LandedCheckpoint]:
    """Return the checkpoints of this root in the order in which they landed, so that the last of a folder counts."""
    landed = [evaluation.folder.read_landed(mark) for mark in evaluation.folder.marks()]
    return sorted((one for one in landed if one.path.is_relative_to(root)), key=lambda one: one.landed_at)


def _line(step: int | None, path: Path) -> _Line:
    return (-1 if step is None else step, str(path))


def _unlanded(evaluation: Evaluation, seen: Observation) -> list[tuple[_Line, EvaluationCell]]:
    key = evaluation.folder.key
    cells = [
        (
            _line(one.found.position.global_step, one.found.folder),
            EvaluationCell(evaluation=key, state=one.state, detail=one.detail),
        )
        for one in seen.pending
    ]
    whole = EvaluationCell(evaluation=key, state="waiting", detail="no watcher has seen it yet")
    return cells + [(_line(one.found.position.global_step, one.found.folder), whole) for one in seen.whole]


def _cell(evaluation: Evaluation, landed: LandedCheckpoint, is_wanted: bool, now: datetime) -> EvaluationCell:
    key = evaluation.folder.key
    record = None if landed.model_key is None else evaluation.folder.read_record(landed.model_key)
    if record is not None and record.is_settled:
        state: CellState = "done" if record.state == "done" else "failed"
        return EvaluationCell(evaluation=key, state=state, detail=record.error or "", run_id=record.run_id)
    if landed.is_vanished:
        detail = "removed or rewritten before it was evaluated"
        return EvaluationCell(evaluation=key, state="vanished", detail=detail)
    if not is_wanted:
        return EvaluationCell(evaluation=key, state="skipped")
    state, detail = ("waiting", "") if record is None else _progress(evaluation, record, now)
    return EvaluationCell(evaluation=key, state=state, detail=detail)


def _progress(evaluation: Evaluation, record: EvaluationRecord, now: datetime) -> tuple[CellState, str]:
    """Return state and detail of an evaluation that is not settled."""
    if record.state == "running":
        if evaluation.folder.is_interrupted(record.model_key):
            return "waiting", "was interrupted; the next watcher goes on"
        return "running", ""
    due = "now" if record.not_before is None or record.not_before <= now else f"at {record.not_before:%H:%M:%S} UTC"
    if record.num_failures:
        return "retrying", f"attempt {record.num_attempts} failed, the next is due {due}: {record.error}"
    return "waiting", f"{record.error} (the next attempt is due {due})" if record.error else ""
