"""How far a replica is, for terminals, logs and the Prefect UI."""

from schemas.base import Model
from schemas.states import WorkerPhase


class ReplicaProgress(Model):
    """One look at one replica."""

    replica: int
    """Its number, from 0."""
    phase: WorkerPhase
    """What it is doing."""
    num_done: int
    """Samples finished in this attempt."""
    num_work: int
    """Samples it was given in this attempt."""
    samples_per_s: float | None = None
    """Over the time since its first sample; None before that."""
    tokens_per_s: float | None = None
    """Completion tokens of finished samples over the same time."""
    batch_size: int = 0
    """Batch size setting in force."""

    @property
    def left_s(self) -> float | None:
        """Seconds left at this pace; None while there is no pace."""
        return (self.num_work - self.num_done) / self.samples_per_s if self.samples_per_s else None

    @property
    def headline(self) -> str:
        """`replica 0 generating 12.3 samples/s`."""
        pace = "" if self.samples_per_s is None else f" {self.samples_per_s:.1f} samples/s"
        return f"replica {self.replica} {self.phase.value}{pace}"

    def as_line(self) -> str:
        """Return everything on one line, for logs."""
        left = "" if self.left_s is None else f", {self.left_s:.0f} s left"
        return f"{self.headline}: {self.num_done}/{self.num_work}{left}"
