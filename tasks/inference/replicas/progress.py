"""From heartbeats to what people want to know: how many, how fast."""

from typing import Final

from schemas.inference import Heartbeat
from schemas.progress import ReplicaProgress
from schemas.states import WorkerPhase

_MIN_SPAN_S: Final = 0.5
"""A pace over less time is noise."""


class ProgressMeter:
    """Follows the heartbeats of one replica."""

    def __init__(self, replica: int, attempt: int) -> None:
        """`replica`: its number, from 0; `attempt`: how many times it has been started by now."""
        self._replica = replica
        self._attempt = attempt
        self._start: Heartbeat | None = None

    def wait_in_queue(self, reason: str) -> ReplicaProgress:
        """Return the progress of a replica whose job has not begun."""
        return self._without_work(WorkerPhase.QUEUED, reason)

    def start(self) -> ReplicaProgress:
        """Return the progress of a replica whose job has begun and whose worker was not heard yet."""
        return self._without_work(WorkerPhase.STARTING)

    def _without_work(self, phase: WorkerPhase, reason: str = "") -> ReplicaProgress:
        return ReplicaProgress(
            replica=self._replica, attempt=self._attempt, phase=phase, num_done=0, num_work=0, reason=reason
        )

    def read(self, heartbeat: Heartbeat) -> ReplicaProgress:
        """Return the progress at a heartbeat; its pace counts from the first one that says `generating`."""
        if self._start is None and heartbeat.phase is WorkerPhase.GENERATING:
            self._start = heartbeat
        samples_per_s = tokens_per_s = None
        if self._start is not None and heartbeat.num_done:
            span_s = heartbeat.time - self._start.time
            if span_s >= _MIN_SPAN_S:
                samples_per_s = (heartbeat.num_done - self._start.num_done) / span_s or None
                tokens_per_s = (heartbeat.num_completion_tokens - self._start.num_completion_tokens) / span_s or None
        return ReplicaProgress(
            replica=self._replica,
            attempt=self._attempt,
            phase=heartbeat.phase,
            num_done=heartbeat.num_done,
            num_work=heartbeat.num_work,
            samples_per_s=samples_per_s,
            tokens_per_s=tokens_per_s,
            batch_size=heartbeat.batch_size,
        )
