"""Whether anybody is at an evaluation that runs elsewhere: it holds a pin of the weights, whose owner beats."""

import time
from collections.abc import Callable
from pathlib import Path

from infra.checkpoints.pins import source_digest
from infra.ownership.run_ownership import read_beats
from schemas.config import EvaluationConfig


class Pulse:
    """Looks for signs of life of an evaluation's process, wherever it runs; waits for nothing."""

    def __init__(self, config: EvaluationConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the evaluation of one checkpoint.

        Args:
            config: of this checkpoint.
            clock: seconds of this machine; no other machine's clock is compared with it.
        """
        self._pin_root = config.cluster.folder / "pins"
        self._source = Path(config.actor.pinned_path or config.actor.path)
        self._clock = clock
        self._beats = self._look()
        self._changed_at = clock()

    def silence_s(self) -> float:
        """Return the seconds since a sign of life was seen last; since the first look where there was none."""
        beats = self._look()
        if beats != self._beats:
            self._beats, self._changed_at = beats, self._clock()
        return self._clock() - self._changed_at

    def _look(self) -> frozenset[str]:
        return read_beats(self._pin_root.glob(f"{source_digest(self._source.absolute())}-*"))
