"""check-drift for Prefect."""

from datetime import datetime

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from infra.prefect_server.artifact_keys import artifact_key
from schemas.config import EvaluationConfig
from schemas.drift import DriftCheck
from schemas.events import DriftDetected
from tasks.alerts.task import announce
from tasks.checkpoint.resolution import ResolvedCheckpoint
from tasks.drift.earlier_run import compare_with_earlier_run
from tasks.drift.profiles import Rows
from tasks.drift.report import describe_findings, summarise
from tasks.drift.stage import check_drift


def check(config: EvaluationConfig, current: Rows, checkpoint: ResolvedCheckpoint, *, now: datetime) -> DriftCheck:
    """Compare `current` with the frozen reference, show the result as an artifact, and announce what is new of it."""
    found = check_drift(config, current, position=checkpoint.report.position, now=now)
    key = artifact_key("drift", config.experiment_name, found.dataset)
    create_markdown_artifact(summarise(found, now=now), key=key, description="Drift of the validation set")
    if found.alarmed and found.status == "checked":
        event = DriftDetected(
            checkpoint=checkpoint.name,
            global_step=checkpoint.report.global_step,
            dataset=found.dataset,
            message=describe_findings(found),
            since=f"version {found.reference_version}",
            reference_version=found.reference_version,
            current_version=found.current_version,
            features=found.drifted_features,
            broken_rules=found.broken_rules,
        )
        announce(event, config)
    return found


compare_outputs_task = task(name="compare-outputs", cache_policy=NO_CACHE)(compare_with_earlier_run)
check_drift_task = task(name="check-drift", cache_policy=NO_CACHE)(check)
