"""What is known of a watched evaluation, on disk, so that any watcher can go on where another one ended.

{fileroot}/watch/{evaluation key}/
    config.yaml                          what is evaluated
    checkpoints/{mark}/landed.json       a checkpoint that was seen whole
    checkpoints/{mark}/model/{name}/     its weights as hard links, until it is evaluated
    results/{weight digest}/record.json  how its evaluation stands
    results/{weight digest}/owners/      who is at it (infra/run_ownership.py)
    results/{weight digest}/config.yaml  attempt.log    the last attempt

Owns names and writes; must not decide what is evaluated. A checkpoint appears by one rename, with its weights; a record
is replaced whole, by the owner of its folder alone.
"""

import errno
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from infra.atomic import sync_folder, write_text_atomically
from infra.checkpoints.folder_state import read_state
from infra.checkpoints.pins import link_checkpoint
from infra.run_ownership import RunOwnership, is_abandoned
from infra.staging import remove_abandoned, staging_folder
from schemas.checkpoint import CheckpointReport
from schemas.errors import StoreError
from schemas.watch import EvaluationRecord, LandedCheckpoint

_LANDED: Final = "landed.json"
_RECORD: Final = "record.json"
_MODEL: Final = "model"


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
            for folder in (self._checkpoints, self._results, self._staging):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise self._cannot_write(exc) from exc
        write_text_atomically(self.path / "config.yaml", config_yaml)
        remove_abandoned(self._staging)

    def marks(self) -> set[str]:
        """Return the marks of all checkpoints that have landed, or vanished, so far."""
        try:
            return {path.name for path in self._checkpoints.iterdir()}
        except OSError:
            return set()  # nothing was watched yet

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

    def land(self, landed: LandedCheckpoint, report: CheckpointReport | None) -> str | None:
        """Keep a checkpoint with its weights; nothing where another watcher has kept it already.

        Args:
            landed: what is known of it.
            report: its inspection; None for one that vanished.

        Returns:
            Why its weights do not outlive the trainer's rotation; None when they do.

        Raises:
            FileNotFoundError: a file of the checkpoint vanished meanwhile.
            StoreError: the folder cannot be written.
        """
        reason: str | None = None
        with staging_folder(self._staging) as place:
            whole = place / landed.mark
            if report is not None:
                model = whole / _MODEL / landed.model_name
                reason = link_checkpoint(report, model)
                state = read_state(landed.path, model)
                landed = landed.model_copy(update={"held_mark": state and state.mark})
            try:
                whole.mkdir(exist_ok=True)
                write_text_atomically(whole / _LANDED, landed.model_dump_json(indent=1) + "\n")
                whole.rename(self._checkpoints / landed.mark)
                sync_folder(self._checkpoints)
            except OSError as exc:
                if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise self._cannot_write(exc) from exc
        return reason

    def hold_again(self, landed: LandedCheckpoint, report: CheckpointReport) -> None:
        """Keep the weights of a checkpoint that had been released.

        Raises:
            FileNotFoundError: a file of the checkpoint vanished meanwhile.
            StoreError: the folder cannot be written.
        """
        with staging_folder(self._staging) as place:
            link_checkpoint(report, place / _MODEL / landed.model_name)
            try:
                (place / _MODEL).rename(self._checkpoints / landed.mark / _MODEL)
            except OSError as exc:
                if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise self._cannot_write(exc) from exc

    def update_landed(self, landed: LandedCheckpoint) -> None:
        """Replace what is known of a checkpoint.

        Raises:
            StoreError: the folder cannot be written.
        """
        write_text_atomically(self._checkpoints / landed.mark / _LANDED, landed.model_dump_json(indent=1) + "\n")

    def held_model(self, landed: LandedCheckpoint) -> Path | None:
        """Return the folder that holds a checkpoint's weights; None when they have been released."""
        folder = self._checkpoints / landed.mark / _MODEL / landed.model_name
        return folder if landed.model_name and folder.is_dir() else None

    def is_untouched(self, landed: LandedCheckpoint) -> bool:
        """Whether what is held is what was linked: a hard link does not keep a file from being rewritten in place."""
        model = self.held_model(landed)
        state = None if model is None else read_state(landed.path, model)
        return state is not None and state.mark == landed.held_mark

    def release_model(self, landed: LandedCheckpoint) -> None:
        """Let a checkpoint's weights go; the checkpoint itself is never touched."""
        shutil.rmtree(self._checkpoints / landed.mark / _MODEL, ignore_errors=True)

    def result_folder(self, weight_digest: str) -> Path:
        """Return the folder of one evaluation, made where it is not there.

        Raises:
            StoreError: it cannot be made.
        """
        folder = self._results / weight_digest
        try:
            folder.mkdir(exist_ok=True)
        except OSError as exc:
            raise self._cannot_write(exc) from exc
        return folder

    def read_record(self, weight_digest: str) -> EvaluationRecord | None:
        """Return how an evaluation stands; None when it was never begun.

        Raises:
            StoreError: it cannot be read.
        """
        path = self._results / weight_digest / _RECORD
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
        path = self.result_folder(record.weight_digest) / _RECORD
        write_text_atomically(path, record.model_dump_json(indent=1) + "\n")

    def claim(self, weight_digest: str) -> RunOwnership | None:
        """Become the one who is at an evaluation; None while another process is.

        Raises:
            StoreError: the folder cannot be written.
        """
        return RunOwnership.acquire(self.result_folder(weight_digest))

    def is_interrupted(self, weight_digest: str) -> bool:
        """Whether whoever was last at an evaluation has let go or is known to be dead."""
        return is_abandoned(self._results / weight_digest)

    @property
    def _checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def _results(self) -> Path:
        return self.path / "results"

    @property
    def _staging(self) -> Path:
        return self.path / ".staging"

    def _cannot_write(self, exc: OSError) -> StoreError:
        return StoreError(
            f"{self.path} cannot be written ({exc.strerror}); free space there, make it writable or point "
            "cluster.fileroot elsewhere"
        )


def own_folders(fileroot: Path) -> Iterator[Path]:
    """Yield Milepost's own folders of a fileroot: what looks like a checkpoint in them is a copy of one."""
    for name in ("runs", "store", "pins", "watch", "cache", "validation_sets", "alerts"):
        yield fileroot / name
