"""read-pool and refresh-validation-set for Prefect."""

from collections.abc import Sequence
from datetime import datetime

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from infra.datasets.naming import dataset_name
from infra.prefect_server.artifact_keys import artifact_key
from schemas.config import EvaluationConfig
from schemas.refresh import RefreshOutcome
from schemas.training_position import TrainingPosition
from tasks.refresh.source import read_current_rows
from tasks.refresh.stage import refresh_if_due


def refresh(
    config: EvaluationConfig, *, drifted: Sequence[str], position: TrainingPosition, now: datetime
) -> RefreshOutcome | None:
    """Draw a new version of the validation set if one is due, and show it as an artifact."""
    outcome = refresh_if_due(config, drifted=drifted, position=position, now=now)
    if outcome is not None:
        key = artifact_key("validation-set", config.experiment_name, dataset_name(config.valid_dataset))
        create_markdown_artifact(outcome.summary, key=key, description="The new validation set")
    return outcome


read_pool_task = task(name="read-pool", cache_policy=NO_CACHE)(read_current_rows)
refresh_validation_set_task = task(name="refresh-validation-set", cache_policy=NO_CACHE)(refresh)
