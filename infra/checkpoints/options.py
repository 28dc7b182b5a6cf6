"""What a caller may tell the inspection of a checkpoint."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionOptions:
    """Settings that every layout honours."""

    tokenizer_folder: Path | None
    """Where tokenizer and chat template are; None for the checkpoint's own folder."""
    allow_pickle_weights: bool
    """Whether pickle weights, which can run code when loaded, count as complete."""
    base_folder: Path | None
    """The model that an adapter is applied to; None for the one that it names."""
