"""How far training had come when a checkpoint was written: what cadences count by."""

from schemas.base import Model


class TrainingPosition(Model):
    """The position of a checkpoint; what nothing says is None."""

    global_step: int | None = None
    """Training step."""
    epoch: int | None = None
    """Training epoch, from 0."""
