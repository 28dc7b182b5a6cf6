"""What is gathered while a checkpoint folder is read."""

from dataclasses import dataclass, field

from schemas.checkpoint import CheckpointStatus


@dataclass(slots=True)
class Findings:
    """Problems gathered while a folder is read."""

    problems: list[str] = field(default_factory=list[str])
    """Each reason against `complete`, with what to do."""
    needs_conversion: bool = False
    """Whether what is there has to be turned into another form."""

    @property
    def status(self) -> CheckpointStatus:
        """What follows from them."""
        if self.needs_conversion:
            return "needs_conversion"
        return "incomplete" if self.problems else "complete"
