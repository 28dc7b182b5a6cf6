"""grade for Prefect."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.grading.following import grade_run

grade_task = task(name="grade", cache_policy=NO_CACHE)(grade_run)
