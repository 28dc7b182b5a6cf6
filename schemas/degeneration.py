"""Whether a model still answers as a working model does: what was found in a run's completions."""

from typing import Literal

from schemas.base import Model

SignName = Literal["stopped_by_length", "without_answer", "repeating"]


class Onset(Model):
    """Where a row of checkpoints begins that show a sign one after the other."""

    row: str
    """Name of the row: what the signs of all its runs have in common."""
    run_id: str
    """The run of its first checkpoint, as far as they were evaluated then."""
    global_step: int | None
    """The training step of that checkpoint; None when unknown."""


class DegenerationSign(Model):
    """One sign of degenerate generation."""

    name: SignName
    """`stopped_by_length`: cut at the longest length. `without_answer`: ended without stating an answer.
    `repeating`: cut while it said the same again and again."""
    share: float | None
    """Share of the completions looked at that show it; None when that is unknown."""
    ci_low: float | None
    """Lower end of the share's 95% interval."""
    num_items: int
    """Items looked at."""
    threshold: float
    """Share above which a run is degenerate."""
    onset: Onset | None = None
    """Since when it is raised; None where it is not, and in runs of earlier versions."""

    @property
    def is_raised(self) -> bool:
        """Whether the share is above the threshold, and not by chance alone."""
        return self.ci_low is not None and self.ci_low > self.threshold


class DegenerationReport(Model):
    """degeneration.json: the signs of a run."""

    signs: tuple[DegenerationSign, ...]
    """Signs that are looked for."""

    @property
    def raised(self) -> tuple[SignName, ...]:
        """Those above their thresholds."""
        return tuple(sign.name for sign in self.signs if sign.is_raised)
