"""Watch a folder of checkpoints: the flow `reconcile`, and what the watcher has to do with a Prefect server."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import httpx
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.events.worker import EventsWorker
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.settings import PREFECT_API_URL

from infra.store import open_store
from schemas.config import EvaluationConfig, check_launchable
from schemas.errors import SetupError, TransientError
from schemas.events import CheckpointLanded
from schemas.watch import LandedCheckpoint, WatchOutcome
from tasks.alerts.task import announce
from tasks.inference.layout import check_layout
from tasks.watching.launching import EvaluationEnd, EvaluationLauncher, EvaluationOrder, LocalLauncher
from tasks.watching.reconciler import Reconciler
from tasks.watching.root import find_root
from tasks.watching.settling import Evaluation, make_evaluation

_DEPLOYMENT: Final = "evaluate/evaluate"
_POLL_S: Final = 2.0
_EVENTS_END_S: Final = 5.0
"""Seconds that the last events have to reach the server."""

logger = logging.getLogger(__name__)


@flow(name="reconcile", description="Evaluate the checkpoints of a folder that are wanted and not evaluated yet")
def reconcile(config: EvaluationConfig, root: str) -> WatchOutcome:
    """Bring what is in `root` now as far as it goes, each evaluation one time.

    Args:
        config: What each checkpoint gets; `actor.path` in it stands for the checkpoint.
        root: Folder that the trainer saves its checkpoints into.

    Raises:
        UserInputError: the folder cannot be watched, or the configuration cannot be launched.
    """
    return watch([config], Path(root), once=True)


def watch(configs: Sequence[EvaluationConfig], root: Path, *, once: bool) -> WatchOutcome:
    """Evaluate each wanted checkpoint of `root` by each of `configs`, now or, without `once`, for ever.

    Raises:
        UserInputError: the folder cannot be watched, or a configuration cannot be launched.
    """
    for config in configs:
        check_launchable(config)
        check_layout(config)
        open_store(config.cluster.fileroot).check_writable()
    evaluations = [make_evaluation(config) for config in configs]
    real = find_root(root, evaluations, is_patient=not once)
    reconciler = Reconciler(real, evaluations, choose_launcher(configs[0]), on_landed=_tell)
    try:
        return reconciler.run(once=once)
    finally:
        if PREFECT_API_URL.value():
            EventsWorker.drain_all(timeout=_EVENTS_END_S)


def choose_launcher(config: EvaluationConfig) -> EvaluationLauncher:
    """Return what `watch.launcher` asks for.

    Raises:
        SetupError: a deployment is asked for, and there is none.
    """
    wanted = config.watch.launcher
    if wanted == "local" or (wanted == "auto" and not PREFECT_API_URL.value()):
        return LocalLauncher()
    problem = _why_no_deployment()
    if problem is None:
        return DeploymentLauncher()
    if wanted == "deployment":
        raise SetupError(f"watch.launcher is deployment, but {problem}; run `milepost deploy`, or set it to local")
    logger.info("evaluations run on this machine: %s", problem)
    return LocalLauncher()


def _why_no_deployment() -> str | None:
    if not PREFECT_API_URL.value():
        return "PREFECT_API_URL is not set"
    try:
        with get_client(sync_client=True) as client:
            client.read_deployment_by_name(_DEPLOYMENT)
    except ObjectNotFound:
        return f"the Prefect server has no deployment {_DEPLOYMENT}"
    except (httpx.HTTPError, PrefectException) as exc:
        return f"the Prefect server does not answer ({exc})"
    return None


class DeploymentLauncher:
    """Runs evaluations by the deployment `evaluate`: they outlive the watcher, and are found again by their name."""

    def launch(self, order: EvaluationOrder) -> "DeploymentEvaluation":
        """Create the flow run of that name, unless it is there.

        Raises:
            TransientError: the server does not take it.
        """
        parameters = {"config": order.config.model_dump(mode="json", exclude_defaults=True)}
        try:
            with get_client(sync_client=True) as client:
                deployment = client.read_deployment_by_name(_DEPLOYMENT)
                run = client.create_flow_run_from_deployment(
                    deployment.id, parameters=parameters, idempotency_key=order.name
                )
        except (httpx.HTTPError, PrefectException) as exc:
            raise TransientError(f"the Prefect server does not take a run of {_DEPLOYMENT}: {exc}") from exc
        return DeploymentEvaluation(run.id)


class DeploymentEvaluation:
    """A flow run that evaluates."""

    def __init__(self, run_id: UUID) -> None:
        """`run_id`: the flow run's."""
        self._run_id = run_id
        self._asked_at = 0.0

    def poll(self) -> EvaluationEnd | None:
        """Return how it ended; None while it runs, waits for a worker, or the server does not answer."""
        if time.monotonic() - self._asked_at < _POLL_S:
            return None
        self._asked_at = time.monotonic()
        try:
            with get_client(sync_client=True) as client:
                state = client.read_flow_run(self._run_id).state
        except ObjectNotFound:
            return EvaluationEnd(error=f"the flow run {self._run_id} was deleted")
        except (httpx.HTTPError, PrefectException):
            return None
        if state is None or not state.is_final():
            return None
        error = "" if state.is_completed() else f"{state.name}: {state.message or 'no reason given'}"
        return EvaluationEnd(error=error)

    def stop(self) -> bool:
        """Leave it alone: whoever watches next finds it again."""
        return False


def _tell(evaluation: Evaluation, landed: LandedCheckpoint) -> None:
    """Announce a checkpoint to the Prefect server, if there is one."""
    if not PREFECT_API_URL.value():
        return
    step = landed.position.global_step
    event = CheckpointLanded(
        checkpoint=str(landed.path),
        global_step=step,
        message=f"{landed.path.name} is whole" + ("" if step is None else f" (step {step})"),
        weight_digest=landed.weight_digest,
        announced_by="watcher",
    )
    announce(event, evaluation.config)
