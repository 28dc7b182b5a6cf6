"""What is known of a watched evaluation, on disk, so that any watcher can go on where another one ended.

{fileroot}/watch/{evaluation key}/
    config.yaml                          what is evaluated; touched at each look of a watcher that lives
    checkpoints/{mark}/landed.json       a checkpoint that was seen whole
    checkpoints/{mark}/model/{name}/     its weights as hard links, until it is evaluated
    results/{model key}/record.json  how its evaluation stands
    results/{model key}/owners/      who is at it (infra/ownership/run_ownership.py)
    results/{model key}/config.yaml  attempt.log    the last attempt
{fileroot}/watch/watched_again           touched when somebody watches again after nobody did for days

Owns names and writes; must not decide what is evaluated. A checkpoint appears by one rename, with its weights; a record
is replaced whole, by the owner of its folder alone.
"""

import errno
import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from infra.checkpoints.folder_state import read_state
from infra.checkpoints.pins import link_checkpoint
from infra.files.atomic import make_private_root, sync_folder, write_text_atomically
from infra.ownership.run_ownership import RunOwnership, is_abandoned
from infra.ownership.staging import remove_abandoned, staging_folder
from schemas.checkpoint import CheckpointReport
from schemas.errors import StoreError
from schemas.watch import EvaluationRecord, LandedCheckpoint

_LANDED: Final = "landed.json"
_RECORD: Final = "record.json"
_MODEL: Final = "model"
_CONFIG: Final = "config.yaml"
_WATCHED_AGAIN: Final = "watched_again"
_IS_THERE: Final = (errno.ENOTEMPTY, errno.EEXIST)
"""What a rename says onto a folder that another process has filled."""
_SILENT_LIFE_S: Final = 7 * 86_400.0
"""Weights wait a week for a watcher of their evaluation; then the disk is worth more."""
_OUTAGE_S: Final = _SILENT_LIFE_S / 2
"""When nobody at all has watched for so long, the week begins anew: what was watched until an outage of any length has
half of it at least to be watched again. Shorter ones count: else what cron starts now and then would free nothing."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFolder:
    """The folder of one evaluation, whoever watches for it."""

    path: Path
    """{fileroot}/watch/{evaluation key}."""

    @property
    def key(self) -> str:
        """Key of the evaluation."""
        return self.path.name

    def prepare(self, config_yaml: str) -> None:
        """Make the folder, write down what is evaluated, and remove what killed watchers had not finished.

        Raises:
            StoreError: it cannot be written.
        """
        try:
            make_private_root(self.path.parent)
            for folder in (self._checkpoints, self._results, self._staging):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise self._cannot_write(exc) from exc
        self._note_outage()
        write_text_atomically(self.path / _CONFIG, config_yaml)
        remove_abandoned(self._staging)

    def show_life(self) -> None:
        """Have other watchers see that the weights held here are waited for."""
        with suppress(OSError):  # a week of it must fail before it means anything
            os.utime(self.path / _CONFIG)

    def release_silent(self, *, now_s: float | None = None) -> int:
        """Let go what is held for other evaluations of this fileroot that nobody has watched for a week.

        The week is counted from the end of the last outage, in which none of them could be watched.

        Args:
            now_s: Unix time in seconds; None for the clock's.

        Returns:
            How many checkpoints were let go.
        """
        now_s = time.time() if now_s is None else now_s
        num_released = 0
        watched_again_s = _touched_s(self._watched_again)
        for config in self._all_configs():
            if now_s - max(_touched_s(config), watched_again_s) <= _SILENT_LIFE_S:
                continue
            for model in config.parent.glob(f"checkpoints/*/{_MODEL}"):
                shutil.rmtree(model, ignore_errors=True)
                logger.info("released %s: nobody has watched for its evaluation for a week", model)
                num_released += 1
        return num_released

    def marks(self) -> set[str]:
        """Return the marks of all checkpoints that have landed, or vanished, so far.

        Raises:
            StoreError: they cannot be listed.
        """
        return self._names_in(self._checkpoints)

    def model_keys(self) -> set[str]:
        """Return the keys of all models whose evaluation was begun.

        Raises:
            StoreError: they cannot be listed.
        """
        return self._names_in(self._results)

    def read_landed(self, mark: str) -> LandedCheckpoint:
        """Return what is known of a checkpoint.

        Raises:
            StoreError: it cannot be read.
        """
        path = self._checkpoints / mark / _LANDED
        try:
            return LandedCheckpoint.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as exc:
            raise StoreError(
                f"{path} cannot be read as a checkpoint that landed: {exc}; remove {path.parent} to have it found again"
            ) from exc

    def land(
        self, landed: LandedCheckpoint, report: CheckpointReport | None, *, signature: str | None = None
    ) -> str | None:
        """Keep a checkpoint with its weights; nothing where it is kept already, unless as one that vanished.

        Args:
            landed: what is known of it.
            report: its inspection; None for one that vanished.
            signature: state of its folder as it was inspected, with all its files; None with no report.

        Returns:
            Why its weights do not outlive the trainer's rotation; None when they do.

        Raises:
            FileNotFoundError: a file of the checkpoint vanished or was rewritten meanwhile.
            OSError: its weights cannot be linked.
            StoreError: the folder cannot be written.
        """
        reason: str | None = None
        with staging_folder(self._staging) as place:
            whole = place / landed.mark
            if report is not None:
                model = whole / _MODEL / landed.model_name
                reason = link_checkpoint(report, model)
                _require_unchanged(landed.path, report.path, signature)
                state = read_state(landed.path, model)
                landed = landed.model_copy(update={"held_mark": state and state.weights_mark})
            try:
                whole.mkdir(exist_ok=True)
                write_text_atomically(whole / _LANDED, landed.model_dump_json(indent=1) + "\n")
                whole.rename(self._checkpoints / landed.mark)
                sync_folder(self._checkpoints)
            except OSError as exc:
                if exc.errno not in _IS_THERE:
                    raise self._cannot_write(exc) from exc
                before = self.read_landed(landed.mark)
                if report is not None and not before.is_usable:  # it had only been out of sight
                    self._put_model(whole / _MODEL, landed.mark)
                    self.update_landed(_seen_again(before, landed))
        return reason

    def hold_again(self, landed: LandedCheckpoint, report: CheckpointReport) -> None:
        """Keep the weights of a checkpoint that had been released, if it still is what it was.

        Raises:
            StoreError: they cannot be read or linked now, or the folder cannot be written.
        """
        try:
            state = read_state(landed.path, report.path)
            if state is None or landed.mark not in state.marks:
                return
            with staging_folder(self._staging) as place:
                link_checkpoint(report, place / _MODEL / landed.model_name)
                _require_unchanged(landed.path, report.path, state.signature)
                self._put_model(place / _MODEL, landed.mark)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise StoreError(
                f"{landed.path} cannot be held in {self.path} ({exc.strerror or exc}); see whether its file system is "
                "there, and free space in the folder or make it writable"
            ) from exc

    def update_landed(self, landed: LandedCheckpoint) -> None:
        """Replace what is known of a checkpoint.

        Raises:
            StoreError: the folder cannot be written.
        """
        write_text_atomically(self._checkpoints / landed.mark / _LANDED, landed.model_dump_json(indent=1) + "\n")

    def held_model(self, landed: LandedCheckpoint) -> Path | None:
        """Return the folder that holds a checkpoint's weights; None when they have been released.

        Raises:
            StoreError: that cannot be told now.
        """
        folder = self._checkpoints / landed.mark / _MODEL / landed.model_name
        try:
            folder.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise self._cannot_read(folder, exc) from exc
        return folder if landed.model_name else None

    def is_untouched(self, landed: LandedCheckpoint) -> bool:
        """Whether what is held is what was linked: a hard link does not keep a file from being rewritten in place.

        Raises:
            StoreError: that cannot be told now.
        """
        model = self.held_model(landed)
        try:
            state = None if model is None else read_state(landed.path, model)
        except OSError as exc:
            raise self._cannot_read(self.path, exc) from exc
        return state is not None and state.weights_mark == landed.held_mark

    def release_model(self, landed: LandedCheckpoint) -> None:
        """Let a checkpoint's weights go; the checkpoint itself is never touched."""
        shutil.rmtree(self._checkpoints / landed.mark / _MODEL, ignore_errors=True)

    def result_folder(self, model_key: str) -> Path:
        """Return the folder of one evaluation, made where it is not there.

        Raises:
            StoreError: it cannot be made.
        """
        folder = self._results / model_key
        try:
            folder.mkdir(exist_ok=True)
        except OSError as exc:
            raise self._cannot_write(exc) from exc
        return folder

    def read_record(self, model_key: str) -> EvaluationRecord | None:
        """Return how an evaluation stands; None when it was never begun.

        Raises:
            StoreError: it cannot be read.
        """
        path = self._results / model_key / _RECORD
        try:
            return EvaluationRecord.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as exc:
            raise StoreError(
                f"{path} cannot be read as the record of an evaluation: {exc}; remove it to begin anew"
            ) from exc

    def write_record(self, record: EvaluationRecord) -> None:
        """Replace the record; by the owner of its folder alone.

        Raises:
            StoreError: the folder cannot be written.
        """
        path = self.result_folder(record.model_key) / _RECORD
        write_text_atomically(path, record.model_dump_json(indent=1) + "\n")

    def note_told(self, record: EvaluationRecord) -> None:
        """Note that whom it concerns knows that there is no other attempt at an evaluation.

        Raises:
            StoreError: the folder cannot be written.
        """
        write_text_atomically(self.result_folder(record.model_key) / _told(record), "")

    def is_told(self, record: EvaluationRecord) -> bool:
        """Whether that has been noted."""
        return (self._results / record.model_key / _told(record)).exists()

    def claim(self, model_key: str, *, stopping: threading.Event) -> RunOwnership | None:
        """Become the one who is at an evaluation; None while another process is, and when `stopping` ends the wait.

        Raises:
            StoreError: the folder cannot be written.
        """
        return RunOwnership.acquire(self.result_folder(model_key), stopping=stopping)

    def is_interrupted(self, model_key: str) -> bool:
        """Whether whoever was last at an evaluation has let go or is known to be dead."""
        return is_abandoned(self._results / model_key)

    @property
    def _checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def _results(self) -> Path:
        return self.path / "results"

    @property
    def _staging(self) -> Path:
        return self.path / ".staging"

    @property
    def _watched_again(self) -> Path:
        return self.path.parent / _WATCHED_AGAIN

    def _all_configs(self) -> Iterator[Path]:
        """Yield the file that shows life of each evaluation of this fileroot."""
        return self.path.parent.glob(f"*/{_CONFIG}")

    def _note_outage(self) -> None:
        """Note that somebody watches again, where nobody did: before this watcher shows life itself.

        Raises:
            StoreError: it cannot be written.
        """
        signs_s = [touched_s for config in self._all_configs() if math.isfinite(touched_s := _touched_s(config))]
        if signs_s and time.time() - max(signs_s) > _OUTAGE_S:
            write_text_atomically(self._watched_again, "")

    def _put_model(self, model: Path, mark: str) -> None:
        """Move linked weights to where a checkpoint's are held, unless some are.

        Raises:
            OSError: they cannot be moved.
        """
        try:
            model.rename(self._checkpoints / mark / _MODEL)
        except OSError as exc:
            if exc.errno not in _IS_THERE:
                raise

    def _names_in(self, folder: Path) -> set[str]:
        try:
            return {path.name for path in folder.iterdir()}
        except FileNotFoundError:
            return set()  # nothing was watched yet
        except OSError as exc:
            raise self._cannot_read(folder, exc) from exc

    def _cannot_read(self, path: Path, exc: OSError) -> StoreError:
        return StoreError(f"{path} cannot be read now ({exc.strerror or exc}); see whether its file system is there")

    def _cannot_write(self, exc: OSError) -> StoreError:
        return StoreError(
            f"{self.path} cannot be written ({exc.strerror}); free space there, make it writable or point "
            "cluster.fileroot elsewhere"
        )


def _require_unchanged(folder: Path, model: Path, signature: str | None) -> None:
    """Raise FileNotFoundError where a file is not what it was: what was linked meanwhile is of no one checkpoint."""
    state = read_state(folder, model)
    if state is None or state.signature != signature:
        raise FileNotFoundError(errno.ENOENT, "was rewritten or removed while it was linked", str(folder))


def _seen_again(before: LandedCheckpoint, now: LandedCheckpoint) -> LandedCheckpoint:
    """Return what is kept of a checkpoint that had vanished: its turn, where it had one, stays its own."""
    if not before.number:
        return now
    return before.model_copy(update={"is_vanished": False, "held_mark": now.held_mark})


def _touched_s(path: Path) -> float:
    """Return when a file was touched, in seconds since 1970; 0 for one that is not there, infinity if none can tell."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    except OSError:
        return math.inf


def own_folders(fileroot: Path) -> Iterator[Path]:
    """Yield Milepost's own folders of a fileroot: what looks like a checkpoint in them is a copy of one."""
    for name in ("runs", "store", "pins", "watch", "cache", "validation_sets", "alerts"):
        yield fileroot / name


def _told(record: EvaluationRecord) -> str:
    """Name of an empty file; a record that was begun anew has another one."""
    return f"told-{record.series}"
