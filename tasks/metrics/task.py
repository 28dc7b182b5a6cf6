"""aggregate-metrics for Prefect."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.metrics.stage import aggregate_run

aggregate_metrics_task = task(name="aggregate-metrics", cache_policy=NO_CACHE)(aggregate_run)
