"""check-degeneration for Prefect."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.config import EvaluationConfig
from schemas.degeneration import DegenerationReport
from tasks.alerts.task import announce
from tasks.degeneration.news import find_events
from tasks.degeneration.stage import check_degeneration
from tasks.inference.runs.record import RunRecord


def check(config: EvaluationConfig, record: RunRecord) -> DegenerationReport:
    """Look at the completions of a run, and announce each row of checkpoints that show degeneration, told or not."""
    report = check_degeneration(config, record)
    for event in find_events(record.identity, record.run, report):
        announce(event, config)
    return report


check_degeneration_task = task(name="check-degeneration", cache_policy=NO_CACHE)(check)
