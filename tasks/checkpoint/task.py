"""resolve-checkpoint for Prefect."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.checkpoint.resolution import resolve_checkpoint

resolve_checkpoint_task = task(name="resolve-checkpoint", cache_policy=NO_CACHE)(resolve_checkpoint)
