"""check-consistency for Prefect."""

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from infra.prefect_server.artifact_keys import artifact_key
from schemas.config import EvaluationConfig
from schemas.consistency import ConsistencyReport
from schemas.events import ConsistencyViolated
from tasks.alerts.task import announce
from tasks.consistency.report import summarise
from tasks.consistency.stage import check_run_consistency
from tasks.inference.runs.session import RunSession


def check(config: EvaluationConfig, session: RunSession) -> ConsistencyReport:
    """Compare the replicas of a run, show the result as an artifact, and announce a disagreement."""
    found = check_run_consistency(config, session)
    identity = session.record.identity
    key = artifact_key("consistency", identity.experiment_name, identity.dataset)
    create_markdown_artifact(summarise(found), key=key, description="Do the replicas agree?")
    if found.verdict == "disagree":
        event = ConsistencyViolated(
            checkpoint=identity.checkpoint,
            global_step=identity.global_step,
            dataset=identity.dataset,
            message=found.message,
            link=str(session.record.run.path),
            run_id=session.record.run.run_id,
            replicas=tuple(sorted({suspect.replica for check in found.violations for suspect in check.suspects})),
            consequence=config.consistency.on_violation,
        )
        announce(event, config)
    return found


check_consistency_task = task(name="check-consistency", cache_policy=NO_CACHE)(check)
