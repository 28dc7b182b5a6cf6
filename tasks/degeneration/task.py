"""check-degeneration for Prefect."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.config import EvaluationConfig
from schemas.degeneration import DegenerationReport
from schemas.events import GenerationDegenerate
from tasks.alerts.task import announce
from tasks.degeneration.report import describe
from tasks.degeneration.stage import check_degeneration
from tasks.inference.session import RunSession


def check(config: EvaluationConfig, session: RunSession) -> DegenerationReport:
    """Look at the completions of a run, and announce signs of degeneration."""
    report = check_degeneration(config, session)
    if report.raised:
        shares = {sign.name: sign.share for sign in report.signs}
        identity = session.identity
        event = GenerationDegenerate(
            checkpoint=identity.checkpoint,
            global_step=identity.global_step,
            dataset=identity.dataset,
            message=describe(report),
            link=str(session.run.page_path),
            run_id=session.run.run_id,
            share_stopped_by_length=shares.get("stopped_by_length"),
            share_without_answer=shares.get("without_answer"),
            share_repeating=shares.get("repeating"),
            signs=report.raised,
        )
        announce(event, config)
    return report


check_degeneration_task = task(name="check-degeneration", cache_policy=NO_CACHE)(check)
