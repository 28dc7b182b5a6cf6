"""What is to be seen below a root now: checkpoints that are whole, that are being written, that have gone.

A checkpoint is whole when inspection finds it complete and its trainer has finished it: by the trainer's own mark, by
an announcement (infra/trainer/announcements.py), because a newer one stands beside it, or because nothing of it has
changed for a while. Remembers what it has inspected: a folder that has not changed is not read again.
"""

import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.adapter import is_adapter
from infra.checkpoints.discovery import FoundCheckpoint, find_checkpoints, training_order
from infra.checkpoints.folder_state import FolderState, read_state
from infra.trainer.announcements import read_announcements
from schemas.checkpoint import CheckpointReport
from schemas.watch import LandedCheckpoint

_ANNOUNCED_AFTER_S: Final = 2.0
"""Coarseness of file systems' times: an announcement so much older than the weights is still of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeCheckpoint:
    """A checkpoint that can be evaluated."""

    found: FoundCheckpoint
    report: CheckpointReport
    state: FolderState


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCheckpoint:
    """A checkpoint that cannot be evaluated, now or ever."""

    found: FoundCheckpoint
    folder: FolderState | None
    """Of its weights so far; None where there are none."""
    state: Literal["writing", "unusable"]
    detail: str
    has_rested: bool
    """Whether nothing of it has changed for as long as a whole one has to rest: it stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look at a root."""

    whole: tuple[WholeCheckpoint, ...]
    """Those that were not known, by training step."""
    pending: tuple[PendingCheckpoint, ...]
    """The rest."""
    gone: tuple[PendingCheckpoint, ...]
    """Those that were there at the last look, are not known, and whose folder is not there any more."""
    num_found: int
    """Checkpoints that are there, known ones among them."""


class Observer:
    """Looks at one root again and again."""

    def __init__(
        self,
        root: Path,
        *,
        settle_s: float,
        skipped: Collection[Path] = (),
        tokenizer_folder: Path | None = None,
        allow_pickle_weights: bool = False,
        base_folder: Path | None = None,
    ) -> None:
        """Take what to look at.

        Args:
            root: folder of the checkpoints.
            settle_s: seconds without a change after which an unmarked checkpoint is finished.
            skipped: folders in it that are not looked into.
            tokenizer_folder: where the tokenizer is, when not in each checkpoint.
            allow_pickle_weights: whether weights in pickle files are evaluated.
            base_folder: the model that adapters are applied to, when not the one that each names.
        """
        self._root = root
        self._settle_s = settle_s
        self._skipped = frozenset(skipped)
        self._tokenizer_folder = tokenizer_folder
        self._allow_pickle_weights = allow_pickle_weights
        self._base_folder = base_folder
        self._inspected: dict[Path, tuple[str, CheckpointReport]] = {}
        self._unlanded: dict[Path, PendingCheckpoint] = {}
        self._rested: set[Path] = set()

    def look(self, known: Collection[str]) -> Observation:
        """Return what there is now; checkpoints whose mark is in `known` are not inspected.

        Raises:
            OSError: the root cannot be listed.
        """
        found = find_checkpoints(self._root, skipped=self._skipped)
        announced = {_real(one.path): one.announced_at for one in read_announcements(self._root)}
        whole: list[WholeCheckpoint] = []
        pending: list[PendingCheckpoint] = []
        unlanded: dict[Path, PendingCheckpoint] = {}
        for number, one in enumerate(found):
            state, hindrance = _read_state(one)
            if state is None:
                pending.append(self._without_model(one, hindrance))
            elif not _is_known(state, known):
                report = self._inspect(one, state)
                unlanded[one.folder] = self._describe_pending(one, state, report)
                if report.status == "complete" and self._is_finished(one, state, announced, found[number + 1 :]):
                    whole.append(WholeCheckpoint(found=_with_state(one, report), report=report, state=state))
                else:
                    pending.append(unlanded[one.folder])
        before = [one for one in self._unlanded.values() if one.folder and not _is_known(one.folder, known)]
        gone = [one for one in before if _is_removed(one.found.folder)]
        self._unlanded = unlanded
        self._rested = {one.found.folder for one in pending if one.folder is None and one.has_rested}
        self._inspected = {one.folder: self._inspected[one.folder] for one in found if one.folder in self._inspected}
        whole.sort(key=lambda one: training_order(one.found))
        return Observation(whole=tuple(whole), pending=tuple(pending), gone=tuple(gone), num_found=len(found))

    def _without_model(self, one: FoundCheckpoint, hindrance: str) -> PendingCheckpoint:
        return PendingCheckpoint(
            found=one,
            folder=None,
            state="writing" if one.conversion is None else "unusable",
            detail=f"needs conversion: {one.conversion}"
            if one.conversion is not None
            else hindrance or "no weights yet",
            # a dump may have thousands of files: one that has rested is not looked through again
            has_rested=not hindrance and (one.folder in self._rested or self._rests(_changed_s(one.folder))),
        )

    def _describe_pending(
        self, one: FoundCheckpoint, state: FolderState, report: CheckpointReport
    ) -> PendingCheckpoint:
        word = "unusable" if report.status == "needs_conversion" else "writing"
        detail = "; ".join(report.problems) or f"whole; finished once it has not changed for {self._settle_s:g} s"
        return PendingCheckpoint(
            found=_with_state(one, report),
            folder=state,
            state=word,
            detail=detail,
            has_rested=self._rests(state.changed_s),
        )

    def _inspect(self, one: FoundCheckpoint, state: FolderState) -> CheckpointReport:
        before = self._inspected.get(one.folder)
        if before is not None and before[0] == state.signature and not _may_change(before[1]):
            return before[1]
        report = inspect_checkpoint(
            one.folder,
            tokenizer_folder=self._tokenizer_folder,
            allow_pickle_weights=self._allow_pickle_weights,
            base_folder=self._base_folder,
        )
        self._inspected[one.folder] = (state.signature, report)
        return report

    def _is_finished(
        self,
        one: FoundCheckpoint,
        state: FolderState,
        announced: Mapping[str, float],
        later: Sequence[FoundCheckpoint],
    ) -> bool:
        if one.is_marked or _is_announced(one, state, announced):
            return True
        if any(_is_newer_sibling(other, one, state) for other in later):
            return True
        return self._rests(state.changed_s)

    def _rests(self, changed_s: float) -> bool:
        return time.time() - changed_s >= self._settle_s


def describe_landed(found: FoundCheckpoint, state: FolderState, *, number: int, now: datetime) -> LandedCheckpoint:
    """Return what is kept of a checkpoint that has landed, its weights apart."""
    return LandedCheckpoint(
        mark=state.mark,
        path=found.folder,
        layout=found.layout.name,
        position=found.position,
        first_step=found.layout.first_step,
        number=number,
        saved_at=state.saved_at,
        landed_at=now,
        model_name=found.folder.name or "checkpoint",
    )


def _is_known(state: FolderState, known: Collection[str]) -> bool:
    """Whether a folder is known as it is, or by its weights alone to an earlier version."""
    return any(mark in known for mark in state.marks)


def _may_change(report: CheckpointReport) -> bool:
    """Whether a report may change although its folder does not: what an adapter lacks may be its base."""
    return report.status != "complete" and is_adapter(report.path)


def _read_state(one: FoundCheckpoint) -> tuple[FolderState | None, str]:
    """Return the state of a checkpoint's weights, None while there are none, and why it cannot be told now."""
    try:
        return None if one.model is None else read_state(one.folder, one.model), ""
    except OSError as exc:
        return None, f"cannot be read now ({exc.strerror}); the next look tries again"


def _is_removed(folder: Path) -> bool:
    """Whether a folder is not there; one that cannot be looked at may be."""
    try:
        folder.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _changed_s(folder: Path) -> float:
    """Return when anything in a folder was changed last, in seconds since 1970; infinity when that cannot be told."""
    newest_s = 0.0
    for place, _, names in os.walk(folder):
        for path in (Path(place), *(Path(place, name) for name in names)):
            with suppress(OSError):  # removed meanwhile
                status = path.lstat()
                newest_s = max(newest_s, status.st_mtime, status.st_ctime)
    return newest_s or math.inf


def _with_state(one: FoundCheckpoint, report: CheckpointReport) -> FoundCheckpoint:
    """Return a checkpoint with the position that its trainer's state tells beside its name."""
    return one if report.global_step is None else replace(one, position=report.position)


def _real(path: Path | str) -> str:
    """Return a path without links; a trainer may know its folder by another name."""
    try:
        return os.path.realpath(path)
    except ValueError:  # no path at all: NUL, or half a surrogate pair
        return str(path)


def _is_announced(one: FoundCheckpoint, state: FolderState, announced: Mapping[str, float]) -> bool:
    """Whether its trainer says of these weights that they are whole; `announced`: seconds since 1970 by real path."""
    times = [announced.get(_real(path)) for path in (one.folder, one.model) if announced and path is not None]
    return any(at is not None and at + _ANNOUNCED_AFTER_S >= state.saved_at.timestamp() for at in times)


def _is_newer_sibling(other: FoundCheckpoint, one: FoundCheckpoint, state: FolderState) -> bool:
    """Whether `other` was saved after `one`, of which `state` is; an older training may have left later steps."""
    if other.folder.parent != one.folder.parent or other.layout != one.layout or other.model is None:
        return False
    step, own = other.position.global_step, one.position.global_step
    if step is None or own is None or step <= own:
        return False
    newer, _ = _read_state(other)
    return newer is not None and newer.saved_at > state.saved_at
