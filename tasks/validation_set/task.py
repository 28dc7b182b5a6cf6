"""load-validation-set for Prefect."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.validation_set.loading import load_validation_set

load_validation_set_task = task(name="load-validation-set", cache_policy=NO_CACHE)(load_validation_set)
