"""What the store says of a published run."""

from datetime import datetime

from schemas.base import Model


class PublishedRun(Model):
    """One line of `milepost runs`."""

    run_id: str
    """Name of the run in the store."""
    experiment_name: str
    """As configured."""
    trial_name: str
    """As configured."""
    checkpoint: str
    """As configured."""
    weight_digest: str
    """Digest of the weights."""
    global_step: int | None
    """Training step of the checkpoint; None when unknown."""
    dataset: str
    """Name of the dataset."""
    dataset_version: str
    """Digest of the dataset."""
    started_at: datetime
    """First start of the run, UTC."""
    finished_at: datetime
    """When it was published, UTC."""
    num_planned: int
    """Samples planned."""
    num_scored: int
    """Samples with a verdict on the model."""
    num_failed: int
    """Samples without one."""
    accuracy: float | None
    """Accuracy over the whole set; None when undefined."""
