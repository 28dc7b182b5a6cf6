"""The stand-in engine's settings: a try-out engine that makes up answers at a set pace, for machines without a model.

What it makes is no evaluation of anything: it exists to try a cluster, a scheduler or the flow in seconds.
"""

from pathlib import Path
from typing import Final

from pydantic import Field

from schemas.base import Section

DUMMY_ENGINE: Final = "dummy engine"
"""What people are told: its runs stand in the same store as those of models, and are never compared with them."""


def is_dummy(engine: str) -> bool:
    """Whether the engine of that name makes its answers up."""
    return engine == "stand_in"


class StandInConfig(Section):
    """How the stand-in behaves. Its answers depend on prompt, seed and these settings alone."""

    accuracy: float = Field(default=0.6, ge=0, le=1)
    """Share of its answers that equal the gold. 0.6 is what a small model reaches on school problems."""
    mean_tokens: float = Field(default=64.0, ge=1, le=1_000_000)
    """Mean length of its completions in tokens; they are spread as those of models are (lognormal)."""
    step_s: float = Field(default=0.01, ge=0, le=10)
    """Seconds that one token of the whole batch takes: about what a GPU needs for a small model."""
    load_s: float = Field(default=0.0, ge=0, le=3600)
    """Seconds that loading takes. 0, as there is nothing to load."""
    sequence_bytes: int = Field(default=0, ge=0)
    """Memory that each sequence of the batch really takes while it runs, in bytes: under a limit of the machine or of
    the scheduler, too large a batch runs out of memory as with a model. 0: none."""
    deadly_item_rate: float = Field(default=0.0, ge=0, le=1)
    """Share of items whose generation ends the worker's process by SIGSEGV, whoever tries. 0: none."""
    hanging_item_rate: float = Field(default=0.0, ge=0, le=1)
    """Share of items whose generation never ends and stops the batch with it. 0: none."""

    @property
    def decisive(self) -> "StandInConfig":
        """What decides its answers. Pace, memory and faults are left out: a resumed run may have others."""
        return StandInConfig(accuracy=self.accuracy, mean_tokens=self.mean_tokens)


class StandInSpec(StandInConfig):
    """What a worker's stand-in is told."""

    answers_path: Path
    """Parquet of PROMPT_SCHEMA: the golds by prompt hash."""
