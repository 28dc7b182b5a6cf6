"""What is gathered while a checkpoint folder is read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from schemas.checkpoint import CheckpointStatus

MAX_SHOWN: Final = 200
"""Characters of a name in a message."""
MAX_NAMES: Final = 3
"""Names listed in a message before it says how many more."""


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


def list_names(names: Sequence[str], *, total: int | None = None) -> str:
    """Return the first names, cut to a line's length, and how many more there are.

    `total`: number of all names, where `names` holds only the first ones.
    """
    num_more = (len(names) if total is None else total) - MAX_NAMES
    more = f" and {num_more} more" if num_more > 0 else ""
    return ", ".join(name[:MAX_SHOWN] for name in names[:MAX_NAMES]) + more
