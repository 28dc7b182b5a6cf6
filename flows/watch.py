"""Watch a folder of checkpoints: the flow `reconcile`, and what the watcher has to do with a Prefect server."""

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, cast

from prefect import flow
from prefect.client.schemas.responses import DeploymentResponse
from prefect.runtime import deployment as own_deployment
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL
from prefect.states import Completed

from flows.orchestration.deployment_launcher import (
    AutoLauncher,
    DeploymentLauncher,
    find_deployment,
    name_deployment,
    shares_files,
)
from flows.orchestration.named_deployments import set_of
from flows.orchestration.prefect_answers import check_answer
from flows.orchestration.run_log import log_errors_by_message
from flows.orchestration.run_name import describe_outcome, is_generated, name_root
from flows.orchestration.run_record import change_run
from flows.preflight import check_layout_elsewhere
from infra.files.new_folders import empty_folders_removed
from infra.store import open_store
from schemas.config import EvaluationConfig, check_launchable
from schemas.errors import LaunchError, SetupError, TransientError, UserInputError
from schemas.events import CheckpointLanded, EvaluationFailed
from schemas.watch import EvaluationRecord, LandedCheckpoint, WatchOutcome
from tasks.alerts.ledger import alert_folder, end_failures, was_told
from tasks.alerts.task import announce, announce_failure, dataset_of, deliver_waiting
from tasks.inference.planning.layout import check_layout
from tasks.validation_set.loading import check_data
from tasks.watching.launching import EvaluationLauncher, LocalLauncher
from tasks.watching.reconciler import Reconciler
from tasks.watching.root import find_root
from tasks.watching.selection import check_selection
from tasks.watching.settling import Evaluation, make_evaluation

_DELIVER_S: Final = 30.0
"""Seconds between two looks for alerts that are due."""

logger = logging.getLogger(__name__)

log_errors_by_message()


def _name_reconcile() -> str:
    given = flow_run.name or ""
    return f"reconcile {name_root(flow_run.parameters['root'])}" if is_generated(given) else given


@flow(
    name="reconcile",
    flow_run_name=_name_reconcile,
    description="Evaluate the checkpoints of a folder that are wanted and not evaluated yet",
)
def reconcile(config: EvaluationConfig, root: str) -> WatchOutcome:
    """Bring what is in `root` now as far as it goes, each evaluation one time; a root may be made later.

    Args:
        config: What each checkpoint gets; `actor.path` in it stands for the checkpoint.
        root: Folder that the trainer saves its checkpoints into.

    Raises:
        UserInputError: the folder cannot be watched, or the configuration cannot be launched.
    """
    try:
        name = set_of(own_deployment.name or "")
        outcome = watch([config], Path(root), once=True, is_patient=True, name=name)
    except Exception as exc:  # nobody looks at the runs of a schedule
        announce_failure(exc, config.at_checkpoint(root), "", None)
        raise
    end_failures(alert_folder(config.cluster.folder), checkpoint=root, subject=dataset_of(config))
    said = describe_outcome(outcome)
    if flow_run.name == f"reconcile {name_root(root)}":
        change_run(name=f"{flow_run.name}: {said}")
    return cast("WatchOutcome", Completed(message=said, data=outcome))


def watch(
    configs: Sequence[EvaluationConfig], root: Path, *, once: bool, is_patient: bool, name: str = ""
) -> WatchOutcome:
    """Evaluate each wanted checkpoint of `root` by each of `configs`, now or, without `once`, for ever.

    `is_patient`: a root that is not there yet, in a folder that is, holds nothing to do; else it is an error.
    `name`: the set of deployments that evaluations run by, where they run by one.

    Raises:
        UserInputError: the folder cannot be watched, or a configuration cannot be launched.
    """
    for config in configs:
        check_selection(config)
    evaluations = [make_evaluation(config) for config in configs]
    real = find_root(root, evaluations, is_patient=is_patient)
    with ExitStack() as folders:
        for config in configs:
            folders.enter_context(empty_folders_removed(config.cluster.folder, on=UserInputError))
        launcher = _choose_launcher(configs, name)
    reconciler = Reconciler(real, evaluations, launcher, on_landed=_tell_landed, on_given_up=_tell_given_up)
    with _waiting_delivered([config.cluster.folder for config in configs]):
        return reconciler.run(once=once, is_patient=is_patient)


@contextmanager
def _waiting_delivered(fileroots: Sequence[Path]) -> Generator[None]:
    """Deliver the alerts that wait for their targets while the block runs, as they come due."""
    ended = threading.Event()

    def deliver() -> None:
        while not ended.wait(_DELIVER_S):
            for fileroot in set(fileroots):
                deliver_waiting(fileroot)

    thread = threading.Thread(target=deliver, name="alerts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def _choose_launcher(configs: Sequence[EvaluationConfig], name: str) -> EvaluationLauncher:
    """Return what `watch.launcher` of the first configuration asks for, once all can be launched by it.

    Raises:
        UserInputError: one of them cannot be launched.
        SetupError: a deployment is asked for, and there is none; or what answers is no Prefect server for us.
    """
    for config in configs:
        check_launchable(config)
        open_store(config.cluster.folder).check_writable()
    wanted = configs[0].watch.launcher
    if wanted == "local" or (wanted == "auto" and not PREFECT_API_URL.value()):
        with suppress(TransientError):  # it is waited for
            _check_server()
        _check_inputs(configs, check_layout)
        return LocalLauncher(_check_server)
    if wanted == "deployment":
        if shares_files(_require_deployment(name)):
            _check_inputs(configs, check_layout_elsewhere)
        return DeploymentLauncher(name)
    try:
        check_answer()
        deployment = find_deployment(name)
    except TransientError as exc:  # once it is back, it tells whether it has the deployment
        logger.warning("%s; evaluations begin once it does", exc)
        _check_inputs(configs, check_layout_elsewhere)
        return AutoLauncher(name)
    if deployment is None:
        logger.info("the Prefect server has no deployment %s: evaluations run on this machine", name_deployment(name))
        _check_inputs(configs, check_layout)
    elif shares_files(deployment):
        _check_inputs(configs, check_layout_elsewhere)
    return AutoLauncher(name)


def _check_inputs(configs: Sequence[EvaluationConfig], check_place: Callable[[EvaluationConfig], None]) -> None:
    """Look at what each evaluation needs, whatever its checkpoint.

    Raises:
        UserInputError: something cannot be used.
    """
    for config in configs:
        check_place(config)
        check_data(config)  # a dataset that cannot be read or graded is told now, not at each checkpoint


def _require_deployment(name: str) -> DeploymentResponse:
    """Return the deployment that is to evaluate.

    Raises:
        SetupError: there is none.
    """
    problem = "PREFECT_API_URL is not set"
    if PREFECT_API_URL.value():
        try:
            check_answer()
            deployment = find_deployment(name)
        except TransientError as exc:
            problem = str(exc)
        else:
            if deployment is not None:
                return deployment
            problem = f"the Prefect server has no deployment {name_deployment(name)}"
    command = f"milepost deploy CONFIG --name {name}" if name else "milepost deploy"
    raise SetupError(f"watch.launcher is deployment, but {problem}; run `{command}`, or set it to local")


def _check_server() -> None:
    """Return unless a Prefect server is asked for that no evaluation would even start without.

    Raises:
        TransientError: it does not answer.
        SetupError: it is none, or none for us.
    """
    if PREFECT_API_URL.value():
        check_answer()


def _tell_landed(evaluation: Evaluation, landed: LandedCheckpoint) -> None:
    """Announce a checkpoint to the Prefect server, if there is one."""
    if not PREFECT_API_URL.value():
        return
    step = landed.position.global_step
    event = CheckpointLanded(
        checkpoint=str(landed.path),
        global_step=step,
        message=f"{landed.path.name} is whole" + ("" if step is None else f" (step {step})"),
        weight_digest=landed.weight_digest,
        identity_digest=landed.identity_digest,
        announced_by="watcher",
    )
    announce(event, evaluation.config)


def _tell_given_up(evaluation: Evaluation, landed: LandedCheckpoint, record: EvaluationRecord) -> bool:
    """Announce that there is no other attempt, or none that could be launched; return whether it is told.

    A failure of these attempts that has been told is no news, nor is what an earlier version gave up. Without a server
    there is nobody to tell.
    """
    if not PREFECT_API_URL.value() or record.began_at is None:
        return True
    config = evaluation.config
    reason = (record.error or "").partition("\n")[0]  # what follows is the end of a log, which may hold anything
    event = EvaluationFailed(
        checkpoint=str(record.path),
        global_step=landed.position.global_step,
        dataset=dataset_of(config),
        message=f"given up after {record.num_failures} attempts: {reason}"
        if record.is_settled
        else f"cannot be launched: {reason}",
        since=f"the first attempt, {record.began_at:%Y-%m-%d %H:%M %Z}",
        run_id="",
        error="GivenUp" if record.is_settled else LaunchError.__name__,
        series=f"{evaluation.folder.key}-{record.model_key}-{record.series}",
    )
    return was_told(alert_folder(config.cluster.folder), event, since=record.began_at) or announce(event, config)
