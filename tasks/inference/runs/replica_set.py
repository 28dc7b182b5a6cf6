"""The replicas of one attempt at a run: the work of each, their jobs, and what goes on when a worker ends early."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from infra.files.atomic import make_own_folder, write_table_atomically
from infra.jobs.base import Launcher
from infra.launchers.selection import make_launcher
from schemas.config import EvaluationConfig
from schemas.consistency import WorkerName
from schemas.identity import SampleKey
from schemas.inference import WorkerResult, WorkerSpec
from schemas.provenance import Provenance
from tasks.inference.exchange.journal import finished_samples
from tasks.inference.exchange.work_table import work_table
from tasks.inference.planning.plan import divide_work
from tasks.inference.planning.replica_spec import NextLaunch, ReplicaSettings, replica_spec
from tasks.inference.replicas.work_board import WorkBoard
from tasks.inference.runs.record import RunRecord
from tasks.inference.worker.broken_numbers import BROKEN, set_aside_broken

logger = logging.getLogger(__name__)


class ReplicaSet:
    """The replicas that an attempt has launched together. Each goes on with new workers until its work is done."""

    specs: tuple[WorkerSpec, ...]
    """What the first worker of each replica is told."""
    avoided_nodes: frozenset[str] = frozenset()
    """Machines on which a scheduler starts no replica of this run any more."""
    num_resumed: int = 0
    """Samples that earlier attempts finished."""

    def __init__(
        self,
        record: RunRecord,
        config: EvaluationConfig,
        settings: ReplicaSettings,
        work: Mapping[int, pa.Table],
        launcher: Launcher,
        stopping: threading.Event,
    ) -> None:
        """Write the `work` of each replica (columns of `work_table`); the latest attempt of `record` is theirs.

        `stopping` ends their workers.

        Raises:
            StoreError: the run folder cannot be written.
        """
        self.record = record
        self.config = config
        self.settings = settings
        self.launcher = launcher
        self.stopping = stopping
        self.board = WorkBoard(work)
        self.attempt = record.attempt
        self._folders: dict[int, list[Path]] = {replica: [] for replica in work}
        self._has_shrunk = False
        self._submission = threading.Lock()
        self._restart = threading.Lock()
        self._jobs: dict[int, str] | Exception | None = None
        first = NextLaunch(batch_size=settings.batch_size, reason="")
        self.specs = tuple(self._prepare_replica(replica, rows, first) for replica, rows in work.items())

    def job_of(self, replica: int, submit: Callable[[], Sequence[str]]) -> str:
        """Return the job of a replica. The first call submits those of all replicas, in the order of `specs`.

        Raises:
            SetupError, TransientError: they cannot be submitted; every replica is told the same.
        """
        with self._submission:
            if self._jobs is None:
                try:
                    self._jobs = dict(zip((spec.replica for spec in self.specs), submit(), strict=True))
                except Exception as exc:  # noqa: BLE001 - else the next replica would submit all of them again
                    self._jobs = exc
            if isinstance(self._jobs, Exception):
                raise self._jobs
            return self._jobs[replica]

    def start_again(self, replica: int, launch: NextLaunch) -> WorkerSpec | None:
        """Begin an attempt of one replica, at what its workers left; None when they left nothing.

        Raises:
            StoreError: the run folder cannot be written, or a journal cannot be read.
        """
        with self._restart:
            left = self.board.take_back(replica, self._finished(replica))
            if not left:
                return None
            refused, in_left = {item.item_id for item in launch.set_aside}, set(left)
            set_aside = [key for key in left if key.item_id in refused]
            alone = [key for key in launch.alone if key in in_left and key.item_id not in refused]
            # in front, where no other replica gets them from: what is set aside costs nothing here
            first = [*set_aside, *alone]
            in_first = set(first)
            rows = work_table([*first, *(key for key in left if key not in in_first)])
            self.record.begin_restart(self.attempt, replica, batch_size=launch.batch_size, reason=launch.reason)
            self.record.add_difference(f"replica {replica} was started again at batch size {launch.batch_size}")
            for item in launch.set_aside:
                self.record.add_difference(f"item {item.item_id} is {item.reason}")
            if launch.shrank and self.settings.memory is not None:
                self._has_shrunk = True
                self.settings.memory.shrank(launch.batch_size)
            return self._prepare_replica(replica, rows, replace(launch, alone=tuple(first)))

    def num_starts(self, replica: int) -> int:
        """Return how many times a replica has been started."""
        return len(self._folders[replica])

    def hand_out(self, replica: int) -> bool:
        """Let others make what a replica that waits in the queue was given; False when nobody can now.

        Raises:
            StoreError: a journal is damaged.
        """
        return self.board.hand_out(replica, self._finished(replica))

    def record_results(self, results: Sequence[WorkerResult]) -> None:
        """Keep what the workers that completed saw of their engines, and the batch size that did.

        Raises:
            StoreError: the run folder cannot be written.
        """
        self.record.change_attempt(
            self.attempt,
            engine_facts=tuple(result.facts for result in results if result.facts is not None),
            engine_s=sum(result.generate_s or 0.0 for result in results),
        )
        if results and self.settings.memory is not None and not self._has_shrunk:
            self.settings.memory.completed(self.settings.batch_size)

    def _finished(self, replica: int) -> set[SampleKey]:
        """Return what the workers of a replica have finished in this attempt."""
        return finished_samples(self._folders[replica])

    def _prepare_replica(self, replica: int, rows: pa.Table, launch: NextLaunch) -> WorkerSpec:
        record = self.record
        folder = record.run.replica_dir(record.attempt, replica)
        make_own_folder(folder)
        write_table_atomically(folder / "work.parquet", rows)
        self._folders[replica].append(folder)
        self.board.begin(replica, folder, rows, num_kept=len(launch.alone))
        name = WorkerName(replica=replica, attempt=record.attempt)
        return replica_spec(record.run, record.plan, self.config, self.settings, name, launch).model_copy(
            update={
                "awaits_more": len(self._folders) > 1,
                "owner_beat_path": None if self.launcher.ends_with_controller else record.heartbeat_path,
            }
        )


def start_attempt(
    record: RunRecord,
    config: EvaluationConfig,
    settings: ReplicaSettings,
    provenance: Provenance,
    *,
    stopping: threading.Event,
) -> ReplicaSet:
    """Divide what earlier attempts left among the replicas, and write each one's work.

    Raises:
        StoreError: the run folder cannot be written.
    """
    run, plan = record.run, record.plan
    stopping.clear()
    launcher = make_launcher(
        config.scheduler, run_key=str(run.path.resolve()), folder=run.slurm_path, stopping=stopping
    )
    with ExitStack() as on_failure:
        on_failure.callback(launcher.close)
        on_failure.callback(stopping.set)
        launcher.end_earlier_jobs()
        record.begin_attempt(
            config, num_replicas=len(settings.placements), batch_size=settings.batch_size, provenance=provenance
        )
        if num_broken := set_aside_broken(run):
            record.add_difference(f"{num_broken} earlier workers set aside: {BROKEN}")
        done = finished_samples(run.replica_dirs())
        if done:
            logger.info("run %s goes on: %d of %d samples are there", run.run_id, len(done), plan.num_planned)
        divided = divide_work(plan, done, len(settings.placements), settings.lengths)
        work = {replica: rows for replica, rows in enumerate(divided) if rows.num_rows}
        replicas = ReplicaSet(record, config, settings, work, launcher, stopping)
        replicas.num_resumed = len(done)
        on_failure.pop_all()
    return replicas
