"""Watching a folder of checkpoints: the section `watch`, what is kept on disk, and what `milepost status` prints."""

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from schemas.base import Model, Section
from schemas.training_position import TrainingPosition

Order = Literal["newest", "oldest"]
EvaluationState = Literal["waiting", "running", "done", "failed"]
CellState = Literal["waiting", "running", "retrying", "done", "failed", "vanished", "skipped", "writing", "unusable"]


class WatchConfig(Section):
    """Which checkpoints `milepost watch` evaluates, in which order and how many at once."""

    select: Literal["all", "frequency"] = "all"
    """`all`: every checkpoint. `frequency`: those at which `evaluator.freq_epochs`, `freq_steps` or `freq_secs` falls
    due, as the trainer's evaluator counts."""
    every: int = Field(default=1, ge=1)
    """Of the checkpoints as they landed, every so many-th. 1: each."""
    first: bool = False
    """Whether the first checkpoint, which `evaluator.eval_before_train` asks for as well, is evaluated in any case."""
    final_after_s: float | None = Field(default=None, ge=0)
    """Seconds without a newer checkpoint after which the newest counts as the final one, and is evaluated in any case.
    None: nothing tells that training has ended."""
    order: Order = "newest"
    """Which of several is evaluated first. `newest`: what training is at now, the backlog after it."""
    max_concurrent: int = Field(default=1, ge=1, le=1000)
    """Evaluations that one watcher has running at once. 1: a backlog must not flood the machine or the cluster."""
    max_attempts: int = Field(default=3, ge=1, le=100)
    """Attempts that may fail before an evaluation is reported as failed and left alone."""
    retry_after_s: float = Field(default=60.0, ge=0, le=86_400)
    """Seconds until the second attempt; each further one waits twice as long, up to an hour."""
    settle_s: float = Field(default=60.0, ge=0, le=86_400)
    """Seconds without a change after which a whole checkpoint counts as saved, where neither the trainer nor a newer
    checkpoint beside it says so."""
    poll_s: float = Field(default=10.0, gt=0, le=86_400)
    """Seconds between two looks at the folder. What a trainer announces is seen within a second."""
    launcher: Literal["auto", "local", "deployment"] = "auto"
    """Launcher of an evaluation. `local`: a process on this machine. `deployment`: the deployment `evaluate` of the
    Prefect server. `auto`: the deployment where PREFECT_API_URL is set and has it, else a process."""


class LandedCheckpoint(Model):
    """landed.json: one content of one folder, seen whole, or seen and gone before that."""

    mark: str
    """Digest of the folder's path and of the names, inodes, sizes and times of the files that decide the model; a
    rewritten one has another."""
    path: Path
    """The folder as its trainer names it."""
    layout: str
    """Whose it is."""
    position: TrainingPosition
    """Position of training."""
    first_step: int
    """Number that its trainer gives to the first training step."""
    number: int
    """Turn among the checkpoints that landed here, from 1; 0 for one that was never whole."""
    saved_at: datetime
    """Time of the last change of the weights."""
    landed_at: datetime
    """Time at which it was seen whole; for one that vanished, when that was noticed."""
    model_name: str = ""
    """Name of the folder that holds its weights until they are evaluated; empty for one that was never whole."""
    held_mark: str | None = None
    """The mark of the weights that that folder holds."""
    is_vanished: bool = False
    """Whether its weights were gone, or rewritten, before they were evaluated."""
    weight_digest: str | None = None
    """Digest of its weights, once they have been read."""
    identity_digest: str | None = None
    """Digest of weights, configuration, tokenizer and chat template; None for one that an earlier version read, which
    went by the weights alone."""

    @property
    def model_key(self) -> str | None:
        """What its evaluation is filed under; None until it has been read."""
        return self.identity_digest or self.weight_digest

    @property
    def is_usable(self) -> bool:
        """Whether it was whole, and is there as far as is known."""
        return self.number > 0 and not self.is_vanished


class EvaluationRecord(Model):
    """record.json: how the evaluation of one model stands."""

    weight_digest: str
    """Digest of the weights."""
    identity_digest: str | None = None
    """Digest of the checkpoint's identity."""
    path: Path
    """The checkpoint under which they are evaluated."""
    series: str = ""
    """Tells its attempts from those of a record that was removed to begin anew."""
    state: EvaluationState = "waiting"
    """State of the evaluation. `running` with a dead owner is one that was interrupted, and goes on."""
    num_failures: int = 0
    """Attempts that failed."""
    num_outages: int = 0
    """Attempts that an outage ended: they do not count as failures."""
    num_idle: int = 0
    """The last attempts in a row that finished no sample: the wait before the next one doubles with each."""
    num_samples: int = 0
    """Finished samples of its run when an attempt was cut off last."""
    began_at: datetime | None = None
    """Start of the first attempt; None where an earlier version made the record."""
    started_at: datetime | None = None
    """Start of the last attempt."""
    not_before: datetime | None = None
    """Earliest start of the next attempt; None: at once."""
    error: str | None = None
    """Reason for which the last attempt failed."""
    run_id: str | None = None
    """The published run."""
    finished_at: datetime | None = None
    """Time at which it ended for good."""

    @property
    def model_key(self) -> str:
        """What it is filed under."""
        return self.identity_digest or self.weight_digest

    @property
    def num_attempts(self) -> int:
        """Attempts that have ended."""
        return self.num_failures + self.num_outages

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will be done."""
        return self.state in ("done", "failed")


class EvaluationCell(Model):
    """How one evaluation of one checkpoint stands."""

    evaluation: str
    """Key of the evaluation: one of `WatchStatus.evaluations`."""
    state: CellState
    """`writing`: not whole yet. `unusable`: needs a conversion, or cannot be evaluated. `skipped`: not asked for."""
    detail: str = ""
    """Reason, or the time until which it waits."""
    run_id: str | None = None
    """The published run."""


class WatchedCheckpoint(Model):
    """One line of `milepost status`."""

    path: Path
    """The folder."""
    global_step: int | None
    """Training step."""
    weight_digest: str | None
    """Digest of the weights, once known."""
    cells: tuple[EvaluationCell, ...]
    """One per evaluation, in their order."""


class WatchedEvaluation(Model):
    """One column of `milepost status`."""

    key: str
    """Digest of everything that makes it another evaluation."""
    name: str
    """Experiment, trial and dataset."""


class WatchStatus(Model):
    """The checkpoints of a root, the newest last, by the evaluations of each."""

    root: Path
    """The folder."""
    evaluations: tuple[WatchedEvaluation, ...]
    """The columns."""
    checkpoints: tuple[WatchedCheckpoint, ...]
    """The lines."""
    counts: dict[CellState, int]
    """Cells by state."""
    undelivered_alerts: tuple[str, ...] = ()
    """One line per alert of the fileroot that a target does not have yet."""


class GivenUpEvaluation(Model):
    """An evaluation that no further attempt is made at."""

    path: Path
    """Folder of the checkpoint."""
    global_step: int | None
    """Training step; None when unknown."""
    evaluation: str
    """Experiment, trial and dataset."""
    reason: str
    """Reason for which the last attempt failed."""
    folder: Path
    """Folder of the attempts: once it is removed, the evaluation is tried anew."""


class WatchOutcome(Model):
    """What a `milepost watch` that ended has done; what `--json` prints."""

    root: Path
    """The folder."""
    num_done: int
    """Evaluations that it brought to publication."""
    num_failed: int
    """Attempts of it that failed."""
    num_open: int
    """Evaluations that are still to be made: waiting, running elsewhere, or to be tried again."""
    num_unusable: int = 0
    """Checkpoints that cannot be evaluated as they are, a sharded dump for instance, or that were left incomplete."""
    given_up: tuple[GivenUpEvaluation, ...] = ()
    """Evaluations of checkpoints still in the folder that are given up, by this watcher or an earlier one."""
