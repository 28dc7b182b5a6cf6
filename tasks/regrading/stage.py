"""Grade the samples of a published run again, without generating: the result is a run of its own, the old one stays.

The new run's folder shares the journals of the old one by hard links, so either may be removed without the other.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from infra.fileroot.run_directory import RunDirectory, create_run, find_resumable, run_at
from infra.files.atomic import write_table_atomically, write_text_atomically
from infra.machine.provenance import collect_provenance
from schemas.config import EvaluationConfig, load_config
from schemas.errors import ConfigError, ScoringError, StoreError
from schemas.inference import Plan
from schemas.run import RunState
from schemas.states import RunStatus
from schemas.tables import PROMPT_SCHEMA, conform
from tasks.grading.reward_function import check_function, plausible_call
from tasks.inference.runs.record import RunRecord
from tasks.validation_set.loading import load_graded

_FREE: Final = ("reward_fn", "grading", "metrics")
"""What may change without a sample being made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrading:
    """What is to be done, checked; nothing is written yet."""

    origin: RunDirectory
    """The run whose samples are graded."""
    config: EvaluationConfig
    """Its configuration with the changes."""
    prompts: pa.Table
    """Its prompts (PROMPT_SCHEMA) with the grader of `config`."""
    plan: Plan
    """Its plan."""
    key: str
    """Digest of the plan and of everything that grades; the same command finds its unfinished work by it."""


def plan_regrading(fileroot: Path, run_id: str, overrides: Sequence[str]) -> Regrading:
    """Check that `run_id` can be graded again with `overrides` over its configuration.

    Raises:
        StoreError: there is no such run, its folder is gone, or it has not made every sample.
        ConfigError: the reward function gives no number, or an override changes more than grading and metrics.
        DatasetError: another `reward_fn` needs the dataset, which cannot be read.
    """
    origin = run_at(fileroot, run_id)
    if not (origin.path / "run.json").is_file():
        raise StoreError(
            f"{origin.path} is not there: grading again needs the run's folder with its journals; `milepost runs` "
            "lists the runs, --fileroot says where they are"
        )
    state = origin.read_state()
    if state.status is not RunStatus.COMPLETED and not _lacks_scores_alone(state):
        raise StoreError(f"run {run_id} is {state.status.value}: run its own command again first, which finishes it")
    before = load_config(origin.config_path)
    config = load_config(origin.config_path, overrides)
    changed = [name for name in EvaluationConfig.model_fields if getattr(config, name) != getattr(before, name)]
    refused = [name for name in changed if name not in _FREE]
    if refused:
        raise ConfigError(
            f"grading again makes no sample, but the overrides change {', '.join(refused)}; allowed: "
            f"{', '.join(_FREE)}. To generate with other settings use `milepost evaluate`"
        )
    config = config.model_copy(
        update={"cluster": config.cluster.model_copy(update={"fileroot": str(fileroot.absolute())})}
    )
    plan = origin.read_plan()
    prompts = conform(pq.read_table(origin.prompts_path), PROMPT_SCHEMA)
    if "reward_fn" in changed:
        prompts = _with_graders(prompts, config, plan)
    elif config.reward_function is not None:
        first = prompts.slice(0, 1).to_pylist()[0]
        check_function(config.reward_function, plausible_call(first["prompt"], first["gold"], first["grader_data"]))
    parts = [plan.plan_key, config.reward_fn, config.grading.model_dump_json(), config.metrics.model_dump_json()]
    key = hashlib.blake2b("\0".join(parts).encode(), digest_size=16, person=b"milepost-regrade").hexdigest()
    return Regrading(origin=origin, config=config, prompts=prompts, plan=plan, key=key)


def _lacks_scores_alone(state: RunState) -> bool:
    """Whether a run failed with every sample made, for want of scores."""
    return state.status is RunStatus.FAILED and (state.error or "").startswith(f"{ScoringError.__name__}:")


def open_regrading(regrading: Regrading, *, now: datetime) -> RunRecord:
    """Return the run that holds the new grades: the unfinished one of the same regrading, else a new one.

    Raises:
        StoreError: its folder cannot be made.
    """
    config, origin = regrading.config, regrading.origin
    fileroot = config.cluster.folder
    found = find_resumable(fileroot, regrading.key, config.experiment_name, config.trial_name)
    if found is not None:
        run, ownership = found
        return RunRecord(run, ownership, regrading.plan, run.read_state())
    run, ownership = create_run(fileroot, regrading.key, now)
    try:
        shutil.copytree(origin.attempts_path, run.attempts_path, copy_function=_link)
    except (OSError, shutil.Error) as exc:
        ownership.release()
        raise StoreError(f"the journals of {origin.path} cannot be taken over into {run.path}: {exc}") from exc
    write_table_atomically(run.prompts_path, regrading.prompts)
    write_text_atomically(run.plan_path, regrading.plan.model_dump_json() + "\n")
    state = origin.read_state()
    record = RunRecord(
        run,
        ownership,
        regrading.plan,
        RunState(
            run_id=run.run_id,
            plan_key=regrading.key,
            experiment_name=config.experiment_name,
            trial_name=config.trial_name,
            checkpoint=state.checkpoint,
            global_step=state.global_step,
            base=state.base,
            status=RunStatus.RUNNING,
            started_at=now,
            attempts=state.attempts,
            differences=state.differences,
            regrade_of=origin.run_id,
        ),
    )
    last = state.last_launch
    provenance = collect_provenance().model_copy(update={"engine_packages": last.provenance.engine_packages})
    with record.failure_recorded():
        record.begin_attempt(config, num_replicas=last.num_replicas, batch_size=last.batch_size, provenance=provenance)
    return record


def _link(source: str, target: str) -> None:
    """Share a file, or copy it where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError as exc:
        if exc.errno == errno.ENOSPC:
            raise
        shutil.copy2(source, target)


def _with_graders(prompts: pa.Table, config: EvaluationConfig, plan: Plan) -> pa.Table:
    """Return the prompts with the grader that `config` names and what it needs of the dataset.

    Raises:
        DatasetError: the dataset cannot be read.
        ConfigError: it is another version than was answered.
    """
    dataset = load_graded(config)
    if dataset.version != plan.dataset_version:
        raise ConfigError(
            f"another reward_fn needs the rows of the dataset, and {config.valid_dataset.path} has changed: version "
            f"{dataset.version}, the run answered {plan.dataset_version}; restore the file, or keep reward_fn"
        )
    items = {item.item_id: item for item in dataset.items}
    chosen = [items[str(name)] for name in prompts.column("item_id").to_pylist()]
    for name, values in (
        ("grader", [item.grader for item in chosen]),
        ("grader_data", [item.grader_data for item in chosen]),
    ):
        prompts = prompts.set_column(prompts.schema.get_field_index(name), PROMPT_SCHEMA.field(name), [values])
    return prompts
