"""One command's work on a run, from taking it up to releasing it."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from schemas.config import EvaluationConfig
from schemas.consistency import WorkerName
from schemas.provenance import Provenance
from tasks.inference.planning.replica_spec import ReplicaSettings
from tasks.inference.runs.record import RunRecord
from tasks.inference.runs.replica_set import start_attempt


class RunSession:
    """A run's record with the replicas at work on it. A context manager: leaving it ends them and releases the run."""

    def __init__(
        self, record: RunRecord, config: EvaluationConfig, settings: ReplicaSettings, provenance: Provenance
    ) -> None:
        """Begin an attempt at the run.

        Raises:
            StoreError: the run folder cannot be written; the run is released.
        """
        self.record = record
        self.stopping = threading.Event()
        """Ends the workers of every replica."""
        record.call_on_loss(self.stopping.set)
        with record.failure_recorded():
            self.replicas = start_attempt(record, config, settings, provenance, stopping=self.stopping)
        record.num_resumed = self.replicas.num_resumed  # not what this command makes before it makes some again

    def make_again(
        self, workers: Sequence[WorkerName], reason: str, *, avoided_nodes: frozenset[str] = frozenset()
    ) -> None:
        """Begin an attempt that makes the samples of these workers, set aside before, on the other replicas.

        `avoided_nodes`: machines on which a scheduler starts no replica of this run any more.

        Raises:
            StoreError: the run folder cannot be written.
        """
        record, last = self.record, self.replicas
        dropped = {worker.replica for worker in workers if (worker.attempt or 0) >= last.attempt}
        placements = last.settings.placements
        kept = tuple(placement for replica, placement in enumerate(placements) if replica not in dropped)
        record.add_difference(f"{', '.join(map(str, workers))} quarantined: {reason}")
        last.launcher.close()
        self.replicas = start_attempt(
            record,
            last.config,
            # all of them are left out only where the last attempt itself made up for others
            last.settings._replace(placements=kept or placements),
            record.state.attempts[last.attempt - 1].provenance,
            stopping=self.stopping,
        )
        self.replicas.avoided_nodes = last.avoided_nodes | avoided_nodes

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the replicas and release the run; what was not completed stays resumable."""
        self.stopping.set()  # first: a worker that is ended now is not one to start again
        with self.record.ending(error):
            self.replicas.launcher.close()
