"""resolve-checkpoint for Prefect."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.config import EvaluationConfig
from tasks.checkpoint.resolution import ResolvedCheckpoint, resolve_checkpoint


def resolve(config: EvaluationConfig) -> ResolvedCheckpoint:
    """Inspect, pin and identify the checkpoint that `config` names."""
    return resolve_checkpoint(
        config.actor.path,
        fileroot=config.cluster.folder,
        pinned_path=config.actor.pinned_path,
        tokenizer_path=config.tokenizer_path,
        base_path=config.actor.base_path,
        allow_pickle_weights=config.engine.allow_pickle_weights,
    )


resolve_checkpoint_task = task(name="resolve-checkpoint", cache_policy=NO_CACHE)(resolve)
