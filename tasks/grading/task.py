"""grade and open-regrading for Prefect."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.grading.following import grade_run
from tasks.grading.regrading import open_regrading

grade_task = task(name="grade", cache_policy=NO_CACHE)(grade_run)
open_regrading_task = task(name="open-regrading", cache_policy=NO_CACHE)(open_regrading)
