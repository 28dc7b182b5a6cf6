"""How far a replica is, for terminals, logs and the Prefect UI."""

from typing import Final

from schemas.base import Model
from schemas.states import WorkerPhase

PROGRESS_LOGGER: Final = "milepost.progress"
"""The logger whose records carry a ReplicaProgress as `progress`."""


def _two_digits(pace: float) -> str:
    """A slow engine is not one that stands still: 0.04, not 0.0."""
    return f"{pace:.1f}" if pace >= 1 else f"{pace:.2g}"


class ReplicaProgress(Model):
    """One look at one replica."""

    replica: int
    """Number of the replica, from 0."""
    attempt: int = 1
    """Number of times that this command has started it."""
    phase: WorkerPhase
    """What it is doing."""
    num_done: int
    """Samples finished in this attempt."""
    num_work: int
    """Samples it was given in this attempt."""
    samples_per_s: float | None = None
    """Over the time since it was first heard to generate; None before the first sample after that."""
    tokens_per_s: float | None = None
    """Completion tokens of finished samples over the same time."""
    batch_size: int = 0
    """Batch size setting in force."""
    reason: str = ""
    """Reason for the wait in the queue, in the scheduler's words."""

    @property
    def left_s(self) -> float | None:
        """Seconds left at this pace; None while there is no pace."""
        return (self.num_work - self.num_done) / self.samples_per_s if self.samples_per_s else None

    @property
    def headline(self) -> str:
        """`replica 0 generating 12.3 samples/s (batch size 8, attempt 2)`, `replica 1 queued (Resources)`."""
        pace = "" if self.samples_per_s is None else f" {_two_digits(self.samples_per_s)} samples/s"
        settings = [self.reason] if self.reason else []
        settings += [f"batch size {self.batch_size}"] if self.batch_size else []
        settings += [f"attempt {self.attempt}"] if self.attempt > 1 else []
        return f"replica {self.replica} {self.phase.value}{pace}" + (f" ({', '.join(settings)})" if settings else "")

    def as_line(self) -> str:
        """Return everything on one line, for logs."""
        if not self.num_work:
            return self.headline
        left = "" if self.left_s is None else f", {self.left_s:.0f} s left"
        return f"{self.headline}: {self.num_done}/{self.num_work}{left}"
