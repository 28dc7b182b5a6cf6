"""check-drift for Prefect."""

from datetime import datetime

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from schemas.config import EvaluationConfig
from schemas.drift import DriftCheck
from schemas.training_position import TrainingPosition
from tasks.drift.profiles import Rows
from tasks.drift.stage import check_drift
from tasks.report.drift import summarise


def check(config: EvaluationConfig, current: Rows, *, position: TrainingPosition, now: datetime) -> DriftCheck:
    """Compare `current` with the frozen reference and show the result as an artifact."""
    found = check_drift(config, current, position=position, now=now)
    create_markdown_artifact(summarise(found, now=now), key="drift", description="Drift of the validation set")
    return found


check_drift_task = task(name="check-drift", cache_policy=NO_CACHE)(check)
