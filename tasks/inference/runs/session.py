"""One attempt at a run, from taking it up to letting it go.

Owns the run's folder while it lives: state, plan, prompts and the work of each replica. Whatever ends it is written
into run.json, and the same command takes the run up again unless it was published.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from infra.fileroot.run_directory import RunDirectory
from infra.fileroot.run_ownership import RunOwnership
from infra.files.atomic import make_own_folder, write_table_atomically, write_text_atomically
from infra.launchers.base import Launcher
from infra.launchers.local import LocalLauncher
from infra.launchers.selection import make_launcher
from infra.machine.provenance import describe_differences
from schemas.config import EvaluationConfig, config_digest, config_to_yaml
from schemas.consistency import WorkerName
from schemas.errors import MilepostError, WorkerError
from schemas.identity import SampleKey
from schemas.inference import Plan, WorkerResult, WorkerSpec
from schemas.provenance import Provenance
from schemas.run import Attempt, RunIdentity, RunState
from schemas.states import RunStatus
from tasks.inference.exchange.journal import finished_samples
from tasks.inference.planning.plan import divide_work, work_table
from tasks.inference.planning.replica_spec import ReplicaSettings, replica_spec
from tasks.inference.replicas.recovery import NextLaunch
from tasks.inference.replicas.work_board import WorkBoard
from tasks.inference.worker.broken_numbers import BROKEN, set_aside_broken

logger = logging.getLogger(__name__)

_NO_ATTEMPT: Final = "the session has no attempt; start one first"


class RunSession:
    """The right to work on a run, with what its stages need. A context manager: leaving it records how it ended."""

    def __init__(self, run: RunDirectory, ownership: RunOwnership, plan: Plan, state: RunState) -> None:
        """Take over a run folder that this process owns; the plan is already in it."""
        self.run = run
        self.plan = plan
        self.specs: tuple[WorkerSpec, ...] = ()
        self.num_resumed = 0
        self.launcher: Launcher = LocalLauncher()
        self.board = WorkBoard({})
        self.avoided_nodes = frozenset[str]()
        self.stopping = threading.Event()
        self._config: EvaluationConfig | None = None
        self._settings: ReplicaSettings | None = None
        self._first_attempt = 1
        self._folders: dict[int, list[Path]] = {}
        self._has_shrunk = False
        self._submission = threading.Lock()
        self._restart = threading.Lock()
        self._jobs: dict[int, str] | Exception | None = None
        self._ownership = ownership
        ownership.call_on_loss(self.stopping.set)
        self._state = state
        self._started = time.monotonic()

    @property
    def state(self) -> RunState:
        """What run.json says."""
        return self._state

    @property
    def attempt(self) -> int:
        """Number of the latest attempt, from 1."""
        return len(self._state.attempts)

    @property
    def identity(self) -> RunIdentity:
        """The columns that name the run in every table."""
        return RunIdentity(
            run_id=self.run.run_id,
            experiment_name=self._state.experiment_name,
            trial_name=self._state.trial_name,
            checkpoint=self._state.checkpoint,
            weight_digest=self.plan.weight_digest,
            global_step=self._state.global_step,
            dataset=self.plan.dataset,
            dataset_version=self.plan.dataset_version,
        )

    def start_attempt(self, config: EvaluationConfig, settings: ReplicaSettings, provenance: Provenance) -> None:
        """Divide what earlier attempts left among the replicas, and write each one's work.

        Raises:
            StoreError: the run folder cannot be written.
        """
        self._config, self._settings = config, settings
        self.stopping.clear()
        self._jobs = None
        self.launcher = make_launcher(
            config.scheduler,
            run_key=str(self.run.path.resolve()),
            folder=self.run.slurm_path,
            stopping=self.stopping,
        )
        self.launcher.end_earlier_jobs()
        self.begin_attempt(
            config, num_replicas=len(settings.placements), batch_size=settings.batch_size, provenance=provenance
        )
        self._first_attempt = self.attempt
        if num_broken := set_aside_broken(self.run):
            self.add_difference(f"{num_broken} earlier workers set aside: {BROKEN}")
        done = finished_samples(self.run.replica_dirs())
        self.num_resumed = len(done)
        if done:
            logger.info("run %s goes on: %d of %d samples are there", self.run.run_id, len(done), self.plan.num_planned)
        divided = divide_work(self.plan, done, len(settings.placements), settings.lengths)
        work = {replica: rows for replica, rows in enumerate(divided) if rows.num_rows}
        self.board = WorkBoard(work)
        self._folders = {replica: [] for replica in work}
        first = NextLaunch(batch_size=settings.batch_size, reason="")
        self.specs = tuple(self._prepare_replica(replica, rows, first) for replica, rows in work.items())

    @property
    def config(self) -> EvaluationConfig:
        """The configuration of this attempt.

        Raises:
            WorkerError: there is none yet.
        """
        if self._config is None:
            raise WorkerError(_NO_ATTEMPT)
        return self._config

    @property
    def settings(self) -> ReplicaSettings:
        """What all replicas of this attempt are given.

        Raises:
            WorkerError: there is none yet.
        """
        if self._settings is None:
            raise WorkerError(_NO_ATTEMPT)
        return self._settings

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
            attempt = self._state.attempts[self._first_attempt - 1].model_copy(
                update={
                    "number": self.attempt + 1,
                    "started_at": datetime.now(UTC),
                    "wall_s": None,
                    "num_replicas": 1,
                    "batch_size": launch.batch_size,
                    "engine_facts": (),
                    "engine_s": 0.0,
                    "replica": replica,
                    "reason": launch.reason,
                }
            )
            self._update(attempts=(*self._state.attempts, attempt))
            self.add_difference(f"replica {replica} was started again at batch size {launch.batch_size}")
            for item in launch.set_aside:
                self.add_difference(f"item {item.item_id} is {item.reason}")
            if launch.shrank and self.settings.memory is not None:
                self._has_shrunk = True
                self.settings.memory.shrank(launch.batch_size)
            return self._prepare_replica(replica, rows, replace(launch, alone=tuple(first)))

    def num_starts(self, replica: int) -> int:
        """Return how many times a replica has been started in this attempt."""
        return len(self._folders[replica])

    def hand_out(self, replica: int) -> bool:
        """Let others make what a replica that waits in the queue was given; False when nobody can now.

        Raises:
            StoreError: a journal is damaged.
        """
        return self.board.hand_out(replica, self._finished(replica))

    def _finished(self, replica: int) -> set[SampleKey]:
        """Return what the workers of a replica have finished in this attempt."""
        return finished_samples(self._folders[replica])

    def make_again(
        self,
        config: EvaluationConfig,
        workers: Sequence[WorkerName],
        reason: str,
        *,
        avoided_nodes: frozenset[str] = frozenset(),
    ) -> None:
        """Begin an attempt that makes the samples of these workers, set aside before, on the other replicas.

        `avoided_nodes`: machines on which a scheduler starts no replica of this run any more.

        Raises:
            StoreError: the run folder cannot be written.
        """
        dropped = {worker.replica for worker in workers if (worker.attempt or 0) >= self._first_attempt}
        kept = tuple(placement for replica, placement in enumerate(self.settings.placements) if replica not in dropped)
        self.add_difference(f"{', '.join(map(str, workers))} quarantined: {reason}")
        self.avoided_nodes |= avoided_nodes
        # all of them are left out only where the last attempt itself made up for others
        settings = self.settings._replace(placements=kept or self.settings.placements)
        num_resumed = self.num_resumed
        self.start_attempt(config, settings, self._state.attempts[self._first_attempt - 1].provenance)
        self.num_resumed = num_resumed  # what this command made before was not taken over

    def add_difference(self, text: str) -> None:
        """Name in the run's state something that sets parts of it apart; once.

        Raises:
            StoreError: the run folder cannot be written.
        """
        if text not in self._state.differences:
            self._update(differences=(*self._state.differences, text))

    def begin_attempt(
        self, config: EvaluationConfig, *, num_replicas: int, batch_size: int, provenance: Provenance
    ) -> None:
        """Record that this process works on the run, and what differs from whoever did before.

        Raises:
            StoreError: the run folder cannot be written.
        """
        attempt = Attempt(
            number=self.attempt + 1,
            started_at=datetime.now(UTC),
            num_replicas=num_replicas,
            batch_size=batch_size,
            config_digest=config_digest(config),
            provenance=provenance,
        )
        write_text_atomically(self.run.config_path, config_to_yaml(config))
        self._name_differences(attempt)
        self._update(status=RunStatus.RUNNING, error=None, attempts=(*self._state.attempts, attempt))

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

    def record_results(self, results: Sequence[WorkerResult]) -> None:
        """Keep what the workers that completed saw of their engines, and the batch size that did."""
        attempts = list(self._state.attempts)
        attempts[self._first_attempt - 1] = attempts[self._first_attempt - 1].model_copy(
            update={
                "engine_facts": tuple(result.facts for result in results if result.facts is not None),
                "engine_s": sum(result.generate_s or 0.0 for result in results),
            }
        )
        self._update(attempts=tuple(attempts))
        if results and self.settings.memory is not None and not self._has_shrunk:
            self.settings.memory.completed(self.settings.batch_size)

    def complete(self) -> None:
        """Record that the run is published."""
        self._end(RunStatus.COMPLETED, None)

    @property
    def wall_s(self) -> float:
        """Seconds since this attempt was taken up."""
        return time.monotonic() - self._started

    @contextmanager
    def failure_recorded(self) -> Generator[None]:
        """Let the run go, with the reason in run.json, if the block raises."""
        try:
            yield
        except BaseException as exc:
            self.__exit__(type(exc), exc, exc.__traceback__)
            raise

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the run go; what was not completed stays resumable."""
        self.stopping.set()  # first: a worker that is ended now is not one to start again
        try:
            try:
                self.launcher.close()
            finally:
                if self._state.status is RunStatus.RUNNING:
                    # KeyboardInterrupt and its like say nothing about the run
                    is_failure = isinstance(error, Exception)
                    self._end(RunStatus.FAILED, f"{type(error).__name__}: {error}" if is_failure else "interrupted")
        except MilepostError as exc:
            if error is None:
                raise
            # what ended the run is what its user needs to know; "running" without an owner is resumable as well
            logger.warning("%s", exc)
        finally:
            self._ownership.release()

    def _name_differences(self, attempt: Attempt) -> None:
        """Say what this attempt changes against the one before: the run will mix samples of both."""
        if not self._state.attempts:
            return
        before = self._state.last_launch
        found = list(describe_differences(before.provenance, attempt.provenance))
        found += [
            f"{name} {getattr(before, name)} -> {getattr(attempt, name)}"
            for name in ("num_replicas", "batch_size", "config_digest")
            if getattr(before, name) != getattr(attempt, name)
        ]
        for difference in found:
            logger.warning("run %s goes on with a difference: %s", self.run.run_id, difference)
        known = self._state.differences
        self._update(differences=(*known, *(text for text in found if text not in known)))

    def _end(self, status: RunStatus, error: str | None) -> None:
        attempts = self._state.attempts
        last = attempts[-1:] and (attempts[-1].model_copy(update={"wall_s": self.wall_s}),)
        finished_at = datetime.now(UTC) if status is RunStatus.COMPLETED else None
        self._update(status=status, error=error, finished_at=finished_at, attempts=(*attempts[:-1], *last))

    def require_ownership(self) -> None:
        """Return while the run is this process's.

        Raises:
            WorkerError: another one has taken it over.
        """
        if self._ownership.is_lost:
            raise WorkerError(f"another controller has taken {self.run.path} over, as this one seemed dead to it")

    def _update(self, **changes: object) -> None:
        self.require_ownership()
        self._state = self._state.model_copy(update=changes)
        self.run.write_state(self._state)

    def _prepare_replica(self, replica: int, rows: pa.Table, launch: NextLaunch) -> WorkerSpec:
        config, settings = self.config, self.settings
        folder = self.run.replica_dir(self.attempt, replica)
        make_own_folder(folder)
        write_table_atomically(folder / "work.parquet", rows)
        self._folders[replica].append(folder)
        self.board.begin(replica, folder, rows, num_kept=len(launch.alone))
        name = WorkerName(replica=replica, attempt=self.attempt)
        return replica_spec(self.run, self.plan, config, settings, name, launch).model_copy(
            update={
                "awaits_more": len(self._folders) > 1,
                "owner_beat_path": None if self.launcher.ends_with_controller else self._ownership.beat_path,
            }
        )
