"""open-regrading for Prefect."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.regrading.stage import open_regrading

open_regrading_task = task(name="open-regrading", cache_policy=NO_CACHE)(open_regrading)
