"""check-regression for Prefect."""

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from infra.fileroot.earlier_runs import describe_place
from infra.prefect_server.artifact_keys import artifact_key
from schemas.config import EvaluationConfig
from schemas.events import RegressionDetected
from schemas.regression import RegressionReport
from tasks.alerts.task import announce
from tasks.inference.runs.record import RunRecord
from tasks.regression.report import describe, summarise
from tasks.regression.stage import check_regression, find_news


def check(config: EvaluationConfig, record: RunRecord) -> RegressionReport | None:
    """Compare a run with earlier checkpoints, show the result as an artifact, and announce a drop that is news."""
    report = check_regression(config, record)
    identity = record.identity
    key = artifact_key("regression", identity.experiment_name, identity.dataset)
    create_markdown_artifact(summarise(report), key=key, description="Against earlier checkpoints")
    news = None if report is None else find_news(config, report)
    if report is not None and news is not None:
        event = RegressionDetected(
            checkpoint=identity.checkpoint,
            global_step=identity.global_step,
            dataset=identity.dataset,
            message=describe(report, news),
            since=describe_place(news.run_id, news.global_step),
            link=str(record.run.page_path),
            run_id=record.run.run_id,
            metric=report.metric,
            value=news.value,
            against=news.against,
            against_run_id=news.run_id,
            against_checkpoint=news.checkpoint,
            against_global_step=news.global_step,
            against_value=news.against_value,
            difference=news.difference,
            ci_low=news.ci_low,
            ci_high=news.ci_high,
            p_value=news.p_value,
            minimum_effect=report.minimum_effect,
        )
        announce(event, config)
    return report


check_regression_task = task(name="check-regression", cache_policy=NO_CACHE)(check)
