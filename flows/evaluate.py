"""The flow `evaluate`: one checkpoint on one dataset, from folder to published metrics.

Order and names only; each stage is a task of its own room.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from prefect import flow
from prefect.futures import PrefectFuture, wait
from prefect.runtime import deployment, flow_run
from prefect.states import Completed
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from prefect.utilities.annotations import quote

from flows.orchestration.gpu_budget import check_budget, gpus_held
from flows.orchestration.run_log import log_errors_by_message
from flows.orchestration.run_name import describe_result, is_generated, name_run, tag_run
from flows.orchestration.run_record import change_run
from flows.orchestration.server_access import use_login
from flows.orchestration.suspension import Suspension, suspension_heeded
from infra.checkpoints.pins import release_pin, verify_pin
from infra.store import open_store
from schemas.config import EvaluationConfig, check_launchable
from schemas.consistency import ConsistencyReport
from schemas.drift import DriftCheck
from schemas.errors import MilepostError, UserInputError
from schemas.inference import WorkerResult
from schemas.summary import RunSummary
from schemas.validation_set import ValidationSet
from tasks.alerts.task import announce_failure, dataset_of
from tasks.checkpoint.resolution import ResolvedCheckpoint
from tasks.checkpoint.task import resolve_checkpoint_task
from tasks.consistency.stage import settle_disagreement
from tasks.consistency.task import check_consistency_task
from tasks.degeneration.task import check_degeneration_task
from tasks.drift.profiles import Rows, name_rows
from tasks.drift.task import check_drift_task, compare_outputs_task
from tasks.grading.task import grade_task
from tasks.inference.planning.layout import check_layout, checked_layout
from tasks.inference.replicas.prewarm import start_checks, start_workers
from tasks.inference.runs.session import RunSession
from tasks.inference.task import merge_samples_task, plan_run_task, run_inference_task
from tasks.metrics.task import aggregate_metrics_task
from tasks.refresh.task import read_pool_task, refresh_validation_set_task
from tasks.regression.task import check_regression_task
from tasks.report.page import Guards
from tasks.report.task import publish_task
from tasks.validation_set.task import load_validation_set_task
from tasks.watching.published import find_repetition

T = TypeVar("T")

use_login()  # a script calls the flow without a command that would have done so
log_errors_by_message()


def _one_thread_each() -> TaskRunner[PrefectFuture[Any]]:
    """Have a thread for each replica: with fewer, as Prefect's setting may say, they wait for each other for ever."""
    return cast("TaskRunner[PrefectFuture[Any]]", ThreadPoolTaskRunner[Any](max_workers=sys.maxsize))


def _name_run() -> str:
    given = flow_run.name or ""
    if not is_generated(given):
        return given  # somebody typed it into the form
    parameters = flow_run.parameters
    config = EvaluationConfig.model_validate(parameters["config"])
    return name_run(config.at_checkpoint(parameters.get("checkpoint_path")))


@flow(
    name="evaluate",
    flow_run_name=_name_run,
    description="Evaluate one checkpoint on one dataset",
    task_runner=_one_thread_each(),
)
def evaluate(
    config: EvaluationConfig,
    checkpoint_path: str | None = None,
    repeat: bool = True,
) -> RunSummary:
    """Evaluate `config.actor.path` on `config.valid_dataset` and publish samples and metrics.

    Args:
        config: What is evaluated, on what, how and where.
        checkpoint_path: Folder to evaluate in place of `actor.path`, such as that of a checkpoint that has landed.
        repeat: Whether to evaluate what was published already with the same model, rows and settings; false ends such a
            run once drift was looked for, and returns nothing.

    Raises:
        UserInputError: the input is wrong; nothing was launched.
        MilepostError: the run failed; the same call resumes it.
    """
    config = config.at_checkpoint(checkpoint_path)
    run_id, checkpoint = "", None
    try:
        change_run(tags=tag_run(config, dataset_of(config)))
        check_launchable(config)
        check_budget(config)
        if deployment.id and checked_layout(config) is None:  # its process has not looked, as one of another pool
            check_layout(config)
            start_workers(config)
        open_store(config.cluster.folder).check_writable()
        checkpoint = resolve_checkpoint_task(config)
        start_checks(config, checkpoint.report)
        validation_set, drift = _guarded_validation_set(config, checkpoint)
        version = validation_set.version
        if not repeat and (earlier := find_repetition(config, checkpoint.identity, dataset_version=version)):
            return cast("RunSummary", Completed(message=f"already evaluated: {earlier}"))
        with plan_run_task(config, checkpoint, _quoted(validation_set), now=datetime.now(UTC)) as session, _launched():
            record = session.record
            run_id = record.run.run_id
            with suspension_heeded(session.stopping) as suspension, gpus_held(config, session.stopping):
                consistency = _generate_consistently(config, session, suspension)
            verify_pin(checkpoint.pin)
            certificate = merge_samples_task(record)
            aggregate_metrics_task(record.run, config.metrics)
            outputs = compare_outputs_task(config, record) if config.drift.enabled else None
            guards = Guards(
                drift=drift,
                outputs=outputs,
                consistency=consistency,
                regression=check_regression_task(config, record) if config.alerts.regression.enabled else None,
                degeneration=check_degeneration_task(config, record) if config.alerts.degeneration.enabled else None,
            )
            summary = publish_task(config, record, certificate, guards)
            # whoever calls the flow gets the summary; the server's list shows the message
            return cast("RunSummary", Completed(message=describe_result(summary), data=summary))
    except Exception as exc:
        announce_failure(exc, config, run_id, checkpoint.report.global_step if checkpoint else None)
        raise
    finally:
        if checkpoint is not None:
            release_pin(checkpoint.pin)


def _guarded_validation_set(
    config: EvaluationConfig, checkpoint: ResolvedCheckpoint
) -> tuple[ValidationSet, DriftCheck | None]:
    """Check what is asked for drift, refresh the validation set from its pool where that is due, and load it."""
    now, report = datetime.now(UTC), checkpoint.report
    if not config.refresh.pool:
        validation_set = load_validation_set_task(config, report, checkpoint.folder)
        return validation_set, _check_drift(config, lambda: name_rows(validation_set.rows), checkpoint, now)
    drift = _check_drift(config, lambda: read_pool_task(config), checkpoint, now)
    drifted = drift.drifted_features if drift else ()
    refresh_validation_set_task(config, drifted=drifted, position=report.position, now=now)
    return load_validation_set_task(config, report, checkpoint.folder), drift


def _check_drift(
    config: EvaluationConfig, read: Callable[[], Rows], checkpoint: ResolvedCheckpoint, now: datetime
) -> DriftCheck | None:
    """Check the rows that `read` returns; with drift.enabled false they are not even read."""
    return check_drift_task(config, _quoted(read()), checkpoint, now=now) if config.drift.enabled else None


def _generate_consistently(
    config: EvaluationConfig, session: RunSession, suspension: Suspension | None
) -> ConsistencyReport:
    """Generate and grade until the replicas agree, or until what to do about it has been done."""
    while True:
        _generate_and_grade(config, session)
        if suspension is not None:
            suspension.check()
        report = check_consistency_task(config, session)
        if not settle_disagreement(config, session, report):
            return report


def _quoted(data: T) -> T:
    """Return what Prefect passes on untouched: else it would walk through every prompt in search of futures."""
    return cast("T", quote(data))


@contextmanager
def _launched() -> Generator[None]:
    """What goes wrong from here on, such as a full disk, is a failed run: exit code 2 says nothing was launched."""
    try:
        yield
    except UserInputError as exc:
        exc.exit_code = MilepostError.exit_code
        raise


def _generate_and_grade(config: EvaluationConfig, session: RunSession) -> None:
    """Run every replica; grade what they journal while they run."""
    replicas: list[PrefectFuture[WorkerResult]] = []
    try:
        for spec in session.replicas.specs:
            task = run_inference_task.with_options(task_run_name=f"run-inference-{spec.replica}")
            # one by one: those before an interruption must be known
            replicas.append(task.submit(spec, session.replicas))
        grade_task(
            session.record,
            config.grading,
            function=config.reward_function,
            is_generating=lambda: not all(replica.state.is_final() for replica in replicas),
        )
    finally:
        session.stopping.set()
        wait(list(replicas))
    session.replicas.record_results([replica.result() for replica in replicas])
