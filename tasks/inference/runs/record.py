"""The record of a run, in its folder: what was planned, who worked on it and when, how it ended."""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from infra.fileroot.run_directory import RunDirectory
from infra.files.atomic import write_text_atomically
from infra.machine.provenance import describe_differences
from infra.ownership.run_ownership import RunOwnership
from schemas.config import EvaluationConfig, config_digest, config_to_yaml
from schemas.errors import MilepostError, WorkerError
from schemas.inference import Plan
from schemas.provenance import Provenance
from schemas.run import Attempt, RunIdentity, RunState
from schemas.states import RunStatus

logger = logging.getLogger(__name__)


class RunRecord:
    """A run folder that this process owns. A context manager: leaving it records how the run ended, and releases it.

    The same command takes a run up again unless it was published.
    """

    num_resumed: int = 0
    """Samples that earlier commands finished."""

    def __init__(self, run: RunDirectory, ownership: RunOwnership, plan: Plan, state: RunState) -> None:
        """Take over a run folder that this process owns; the plan is already in it."""
        self.run = run
        self.plan = plan
        self._ownership = ownership
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

    @property
    def wall_s(self) -> float:
        """Seconds since this process took the run up."""
        return time.monotonic() - self._started

    @property
    def heartbeat_path(self) -> Path:
        """File that this process touches as long as it works on the run."""
        return self._ownership.beat_path

    def call_on_loss(self, function: Callable[[], None]) -> None:
        """Call a function, in another thread, when another process has taken the run over."""
        self._ownership.call_on_loss(function)

    def require_ownership(self) -> None:
        """Return while the run is this process's.

        Raises:
            WorkerError: another one has taken it over.
        """
        if self._ownership.is_lost:
            raise WorkerError(f"another controller has taken {self.run.path} over, as this one seemed dead to it")

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

    def begin_restart(self, launched: int, replica: int, *, batch_size: int, reason: str) -> None:
        """Record that one replica of the attempt `launched` begins an attempt of its own.

        Raises:
            StoreError: the run folder cannot be written.
        """
        attempt = self._state.attempts[launched - 1].model_copy(
            update={
                "number": self.attempt + 1,
                "started_at": datetime.now(UTC),
                "wall_s": None,
                "num_replicas": 1,
                "batch_size": batch_size,
                "engine_facts": (),
                "engine_s": 0.0,
                "replica": replica,
                "reason": reason,
            }
        )
        self._update(attempts=(*self._state.attempts, attempt))

    def change_attempt(self, number: int, **changes: object) -> None:
        """Change fields of an attempt.

        Raises:
            StoreError: the run folder cannot be written.
        """
        attempts = list(self._state.attempts)
        attempts[number - 1] = attempts[number - 1].model_copy(update=changes)
        self._update(attempts=tuple(attempts))

    def add_difference(self, text: str) -> None:
        """Name in the run's state something that sets parts of it apart; once.

        Raises:
            StoreError: the run folder cannot be written.
        """
        if text not in self._state.differences:
            self._update(differences=(*self._state.differences, text))

    def complete(self) -> None:
        """Record that the run is published."""
        self._end(RunStatus.COMPLETED, None)

    @contextmanager
    def failure_recorded(self) -> Generator[None]:
        """Record the failure and release the run if the block raises."""
        try:
            yield
        except BaseException as exc:
            with self.ending(exc):
                pass
            raise

    @contextmanager
    def ending(self, error: BaseException | None) -> Generator[None]:
        """Record after the block how the run ended, and release it; what was not completed stays resumable."""
        try:
            try:
                yield
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

    def __enter__(self) -> Self:
        """Return the record itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record how the run ended, and release it."""
        with self.ending(error):
            pass

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

    def _update(self, **changes: object) -> None:
        self.require_ownership()
        self._state = self._state.model_copy(update=changes)
        self.run.write_state(self._state)
