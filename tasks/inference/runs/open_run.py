"""Find the unfinished run of a plan, or begin a new one."""

from datetime import datetime

import pyarrow as pa

from infra.fileroot.run_directory import create_run, find_resumable
from infra.files.atomic import write_table_atomically, write_text_atomically
from schemas.config import EvaluationConfig
from schemas.inference import Plan
from schemas.run import RunState
from schemas.states import RunStatus
from tasks.inference.runs.record import RunRecord


def open_run(
    config: EvaluationConfig,
    plan: Plan,
    prompts: pa.Table,
    *,
    global_step: int | None,
    base: str | None = None,
    now: datetime,
) -> RunRecord:
    """Return the unfinished run of this plan, else a new one, owned by this process.

    `prompts` is PROMPT_SCHEMA, refused items included; `base` names what an adapter is applied to.

    Raises:
        StoreError: the run folder cannot be made or read.
    """
    fileroot = config.cluster.folder
    found = find_resumable(fileroot, plan.plan_key, config.experiment_name, config.trial_name)
    if found is not None:
        run, ownership = found
        record = RunRecord(run, ownership, plan, run.read_state())
        with record.failure_recorded():
            # the prompts are those of the plan; the grader beside them follows the configuration of this attempt
            write_table_atomically(run.prompts_path, prompts)
        return record
    run, ownership = create_run(fileroot, plan.plan_key, now)
    state = RunState(
        run_id=run.run_id,
        plan_key=plan.plan_key,
        experiment_name=config.experiment_name,
        trial_name=config.trial_name,
        checkpoint=config.actor.path,
        global_step=global_step,
        base=base,
        status=RunStatus.RUNNING,
        started_at=now,
    )
    record = RunRecord(run, ownership, plan, state)
    with record.failure_recorded():
        write_table_atomically(run.prompts_path, prompts)
        write_text_atomically(run.plan_path, plan.model_dump_json() + "\n")
        run.write_state(state)
    return record
