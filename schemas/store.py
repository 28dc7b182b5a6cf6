"""What the store says of a published run."""

from datetime import datetime

from schemas.run import RunIdentity


class PublishedRun(RunIdentity):
    """One line of `milepost runs`."""

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
    regrade_of: str | None = None
    """The run whose samples were graded again; None for a run's own samples."""
    accuracy: float | None
    """Accuracy over the whole set; None when undefined."""
