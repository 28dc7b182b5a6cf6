"""The flow `regrade`: changed grading over the samples of a published run, as a new run that keeps the old one."""

from collections.abc import Sequence
from datetime import UTC, datetime

from prefect import flow

from flows.orchestration.run_log import log_errors_by_message
from schemas.paths import expand_user
from schemas.summary import RunSummary
from tasks.grading.task import grade_task
from tasks.inference.task import merge_samples_task
from tasks.metrics.task import aggregate_metrics_task
from tasks.regrading.stage import plan_regrading
from tasks.regrading.task import open_regrading_task
from tasks.report.task import publish_task

log_errors_by_message()


@flow(name="regrade", description="Grade the samples of a run again")
def regrade(run_id: str, overrides: Sequence[str] = (), fileroot: str = "milepost-out") -> RunSummary:
    """Grade the samples of `run_id` with `overrides` (key.path=value) over its configuration; nothing is generated.

    Raises:
        UserInputError: there is no such run, or an override changes more than grading; nothing was written.
        MilepostError: it failed; the same call goes on.
    """
    regrading = plan_regrading(expand_user(fileroot), run_id, overrides)
    config = regrading.config
    with open_regrading_task(regrading, now=datetime.now(UTC)) as record:
        grade_task(record, config.grading, function=config.reward_function, is_generating=lambda: False)
        certificate = merge_samples_task(record)
        aggregate_metrics_task(record.run, config.metrics)
        return publish_task(config, record, certificate)
