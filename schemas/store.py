"""What the store says of a published run."""

from datetime import datetime

from schemas.run import RunIdentity
from schemas.stand_in import is_dummy


class PublishedRun(RunIdentity):
    """One line of `milepost runs`."""

    started_at: datetime
    """First start of the run, UTC."""
    finished_at: datetime
    """Time of publication, UTC."""
    num_planned: int
    """Samples planned."""
    num_scored: int
    """Samples with a verdict on the model."""
    num_failed: int
    """Samples without one."""
    model_config_digest: str | None = None
    """Digest of the checkpoint's config.json and EOS ids; None in runs of earlier versions."""
    engine: str
    """Engine that made the samples."""
    plan_key: str
    """Digest of everything that decides the samples: the same for a run that is repeated or graded again."""
    superseded_by: str | None = None
    """The last run of the same experiment, trial and plan, where this one is not it."""
    regrade_of: str | None = None
    """The run whose samples were graded again; None for a run's own samples."""
    accuracy: float | None
    """Accuracy over the whole set; None when undefined."""

    @property
    def is_dummy(self) -> bool:
        """Whether the dummy engine made the answers up."""
        return is_dummy(self.engine)
