"""The life of a run as kept in its run.json."""

from datetime import datetime

from schemas.base import Model
from schemas.inference import EngineFacts
from schemas.provenance import Provenance
from schemas.states import RunStatus


class Attempt(Model):
    """One launch of a run: of all replicas when a controller takes it up, or of one whose worker was lost."""

    number: int
    """From 1."""
    started_at: datetime
    """Time at which the controller took the run up."""
    wall_s: float | None = None
    """Seconds the controller held it; None while it runs, and for a controller that was killed."""
    num_replicas: int
    """Replicas launched."""
    batch_size: int
    """Batch size of each."""
    config_digest: str
    """Digest of the resolved configuration of this launch."""
    provenance: Provenance
    """Versions and hardware at its start."""
    engine_facts: tuple[EngineFacts, ...] = ()
    """What each replica reported that got as far as loading its engine."""
    engine_s: float = 0.0
    """Seconds of generation summed over the replicas that reported."""
    replica: int | None = None
    """The one replica that was started again; None where all of them were launched."""
    reason: str = ""
    """Reason for the end of the attempt."""


class RunState(Model):
    """run.json: replaced atomically at each change."""

    run_id: str
    """Name of the run."""
    plan_key: str
    """Digest of everything that decides the samples."""
    experiment_name: str
    """As configured."""
    trial_name: str
    """As configured."""
    checkpoint: str
    """As the user named it."""
    global_step: int | None
    """Training step of the checkpoint."""
    base: str | None = None
    """The model that a LoRA adapter is applied to, as it names it; None for a whole model."""
    status: RunStatus
    """Status of the run."""
    started_at: datetime
    """First start."""
    finished_at: datetime | None = None
    """Time of publication."""
    attempts: tuple[Attempt, ...] = ()
    """Every launch, the current one last."""
    differences: tuple[str, ...] = ()
    """What changed between attempts, in words."""
    error: str | None = None
    """Reason for which the last attempt failed."""
    regrade_of: str | None = None
    """The run whose samples this one grades again; None where it made its own."""

    @property
    def last_launch(self) -> Attempt:
        """The latest attempt of all replicas; there is one from the moment that a controller takes the run up."""
        return next(attempt for attempt in reversed(self.attempts) if attempt.replica is None)


class RunIdentity(Model):
    """The columns that name a run in every row of every table."""

    run_id: str
    """Name of the run."""
    experiment_name: str
    """As configured."""
    trial_name: str
    """As configured."""
    checkpoint: str
    """As the user named it."""
    weight_digest: str
    """Digest of the weights."""
    global_step: int | None
    """Training step of the checkpoint."""
    dataset: str
    """Name of the dataset."""
    dataset_version: str
    """Digest of the dataset."""
