"""publish for Prefect: the store, then what the run's page shows."""

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from infra.prefect_server.artifact_keys import artifact_key
from infra.store import open_store
from schemas.config import EvaluationConfig
from schemas.summary import RunSummary
from tasks.alerts.task import announce_completion, has_lasting_server
from tasks.inference.runs.merge import MergeCertificate
from tasks.inference.runs.record import RunRecord
from tasks.report.curve import draw_training_curve
from tasks.report.metrics_table import headline_metrics, tabulate_metrics
from tasks.report.page import NO_GUARDS, Guards
from tasks.report.publication import publish_run
from tasks.report.run_summary import read_earlier_run, summarise_run


def publish(
    config: EvaluationConfig, record: RunRecord, certificate: MergeCertificate, guards: Guards = NO_GUARDS
) -> RunSummary:
    """Publish the run, show what it found as artifacts, and say that it is there."""
    summary = publish_run(config, record, certificate, guards)
    table = tabulate_metrics(headline_metrics(summary.metrics))
    create_table_artifact(
        [dict(zip(table.header, row, strict=True)) for row in table.rows],
        key=artifact_key("metrics", summary.experiment_name, summary.dataset),
        description=f"Metrics of run {summary.run_id}: value ± standard error",
    )
    store = open_store(config.cluster.folder)
    found = summarise_run(summary, guards, read_earlier_run(store, summary, guards))
    # drawing takes a second of a processor: not for the page of a server that ends with this command
    curve = draw_training_curve(store, summary) if has_lasting_server() else None
    create_markdown_artifact(
        found if curve is None else f"{found}\n\n{curve}",
        key=artifact_key("summary", summary.experiment_name, summary.dataset),
        description="What was found, against what, and where the files are",
    )
    announce_completion(summary, config)
    return summary


publish_task = task(name="publish", cache_policy=NO_CACHE)(publish)
