"""plan-run, run-inference and merge-samples for Prefect."""

import logging
import time
from typing import Final
from uuid import UUID

from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE

from infra.prefect_server.artifact_keys import artifact_key
from schemas.inference import WorkerResult, WorkerSpec
from schemas.progress import PROGRESS_LOGGER, ReplicaProgress
from schemas.run import RunIdentity
from tasks.alerts.task import PREFECT_FAILURES
from tasks.inference.runs.replica_set import ReplicaSet
from tasks.inference.stage import merge_run, plan_run, run_to_end

_ARTIFACT_INTERVAL_S: Final = 5.0
"""Least seconds between two updates of a replica's artifact: people look every few seconds at most."""
_ARTIFACTS_PER_S: Final = 2.0
"""Updates of all replicas together: each is a call to the API, some 10 ms of CPU here and more on the server."""

logger = logging.getLogger(__name__)
progress_logger = logging.getLogger(PROGRESS_LOGGER)


class _ProgressReport:
    """Tells a replica's progress: a record for the terminal at each heartbeat, the artifact every few seconds.

    The artifact only shows what the run's own files say: without its server generation goes on, and it is given up.
    """

    def __init__(self, replica: int, num_replicas: int, identity: RunIdentity) -> None:
        self._artifact: UUID | None = None
        self._replica = replica
        self._key = artifact_key(f"replica-{replica}", identity.experiment_name, identity.dataset)
        self._interval_s = max(_ARTIFACT_INTERVAL_S, num_replicas / _ARTIFACTS_PER_S)
        self._next_update = 0.0
        self._is_given_up = False

    def __call__(self, progress: ReplicaProgress) -> None:
        progress_logger.info(progress.as_line(), extra={"progress": progress})
        if time.monotonic() >= self._next_update:
            self._next_update = time.monotonic() + self._interval_s
            self._update(100.0 * progress.num_done / max(1, progress.num_work), progress.as_line())

    def finish(self) -> None:
        """Say that all is done."""
        self._update(100.0, f"replica {self._replica} finished")

    def _update(self, percent: float, description: str) -> None:
        if self._is_given_up:
            return
        try:
            self._show(percent, description)
        except PREFECT_FAILURES as exc:
            self._is_given_up = True
            logger.warning("replica %d: its progress is no longer shown in Prefect (%s)", self._replica, exc)

    def _show(self, percent: float, description: str) -> None:
        if self._artifact is None:
            created = create_progress_artifact(percent, key=self._key, description=description)
            self._artifact = created if isinstance(created, UUID) else None
        else:
            update_progress_artifact(self._artifact, percent, description=description)


def run_inference(spec: WorkerSpec, replicas: ReplicaSet) -> WorkerResult:
    """Run one replica to its end, telling its progress."""
    report = _ProgressReport(spec.replica, len(replicas.specs), replicas.record.identity)
    result = run_to_end(spec, replicas, on_progress=report)
    report.finish()
    return result


plan_run_task = task(name="plan-run", cache_policy=NO_CACHE)(plan_run)
run_inference_task = task(name="run-inference", cache_policy=NO_CACHE)(run_inference)
merge_samples_task = task(name="merge-samples", cache_policy=NO_CACHE)(merge_run)
