"""Runs of several replicas without Prefect: a session, its workers one after the other, grades, and the comparison.

A replica is made faulty as a broken machine would: its specification, its files or its program differ from the plan's.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from infra.jobs.base import Launcher, LaunchSpec, Placement
from infra.machine.provenance import collect_provenance
from infra.tokenizer.files import digest_chat_template, digest_tokenizer, find_chat_template
from schemas.checkpoint import CheckpointIdentity
from schemas.config import EvaluationConfig
from schemas.consistency import ConsistencyReport
from schemas.identity import prompt_hash
from schemas.inference import EngineName, PlannedItem, WorkerSpec
from schemas.sampling import SamplingSpec
from schemas.tables import PROMPT_SCHEMA
from tasks.consistency.stage import check_run_consistency
from tasks.grading.following import grade_run
from tasks.inference.planning.plan import PlanSettings, make_plan
from tasks.inference.planning.replica_spec import ReplicaSettings
from tasks.inference.runs.open_run import open_run
from tasks.inference.runs.session import RunSession
from tasks.inference.stage import run_to_end
from tasks.inference.worker.canaries import plan_canaries

NUM_REPLICAS = 3
PATIENCE_S = 400.0
SAMPLING = SamplingSpec(temperature=1.0, top_p=1.0, top_k=-1, max_new_tokens=24, eos_token_ids=(2,))
Fault = Callable[[WorkerSpec], WorkerSpec]


def prompts_of(questions: Sequence[list[int]]) -> pa.Table:
    """Return PROMPT_SCHEMA rows of these token ids."""
    rows = [
        {
            "item_id": f"item-{number:04d}",
            "prompt_hash": prompt_hash(ids),
            "prompt": f"What is {number}?",
            "token_ids": ids,
            "gold": str(number),
            "grader": "math",
            "grader_data": "",
            "subsets": [],
        }
        for number, ids in enumerate(questions)
    ]
    return pa.Table.from_pylist(rows, schema=PROMPT_SCHEMA)


class ReplicaRun:
    """One run; `generate` may be called again after `settle_disagreement` began another attempt."""

    def __init__(
        self,
        fileroot: Path,
        *,
        prompts: pa.Table,
        model: Path,
        engine: EngineName,
        python: Path,
        config: Mapping[str, object],
    ) -> None:
        """Plan it and divide its work among the replicas; `config`: sections beside the required ones."""
        self.config = EvaluationConfig.model_validate(
            {
                "actor": {"path": str(model), "dtype": "float32"},
                "cluster": {"fileroot": str(fileroot)},
                "valid_dataset": {"path": "questions.jsonl"},
                **config,
            }
        )
        ids = prompts.column("item_id").to_pylist()
        hashes = prompts.column("prompt_hash").to_pylist()
        plan = make_plan(
            identity=CheckpointIdentity(
                weight_digest="w",
                tokenizer_digest=digest_tokenizer(model),
                chat_template_digest=digest_chat_template(find_chat_template(model)),
                model_config_digest="m",
            ),
            dataset="questions",
            dataset_version="v",
            items=[
                PlannedItem(item_id=str(item_id), prompt_hash=str(digest), num_prompt_tokens=1)
                for item_id, digest in zip(ids, hashes, strict=True)
            ],
            refused=(),
            settings=PlanSettings(
                seed=1, n_samples=2, engine=engine, dtype="float32", max_model_len=128, sampling=SAMPLING
            ),
        )
        record = open_run(self.config, plan, prompts, global_step=None, now=datetime.now(UTC))
        replica_settings = ReplicaSettings(
            model_path=model,
            batch_size=8,
            engine_python=python,
            device="cpu",
            placements=(Placement(num_gpus=0, num_cpus=1),) * NUM_REPLICAS,
            canaries=plan_canaries(plan, self.config.consistency, num_replicas=NUM_REPLICAS),
        )
        self.session = RunSession(record, self.config, replica_settings, collect_provenance())

    def generate(self, *, faulty: int | None = None, fault: Fault | None = None, ready: Path | None = None) -> None:
        """Run the replicas and grade; `ready`: an attempt whose healthy replicas are taken over, as they are."""
        replicas = self.session.replicas
        # one after the other, so each keeps its own work
        replicas.specs = tuple(spec.model_copy(update={"awaits_more": False}) for spec in replicas.specs)
        if fault is not None:
            replicas.specs = tuple(fault(spec) if spec.replica == faulty else spec for spec in replicas.specs)
        planned = replicas.specs
        replicas.specs = tuple(spec for spec in planned if ready is None or spec.replica == faulty)
        for spec in replicas.specs:
            run_to_end(spec, replicas, on_progress=lambda _: None)
        replicas.specs = planned
        for spec in planned:
            if ready is not None and spec.replica != faulty:
                shutil.copytree(ready / spec.output_dir.name, spec.output_dir, dirs_exist_ok=True)
        grade_run(self.session.record, self.config.grading, is_generating=lambda: False)

    def check(self) -> ConsistencyReport:
        """Return what the stage finds."""
        return check_run_consistency(self.config, self.session)


class OtherProgramLauncher:
    """Starts another program than the worker: what a node with a broken installation does."""

    ends_with_controller = True

    def __init__(self, inner: Launcher, module: str) -> None:
        """`module` is run in place of tasks.inference.worker."""
        self._inner = inner
        self._module = module
        self.poll, self.wait, self.cancel, self.close = inner.poll, inner.wait, inner.cancel, inner.close
        self.end_earlier_jobs = inner.end_earlier_jobs

    def submit(self, specs: Sequence[LaunchSpec]) -> list[str]:
        """Start the jobs with the other program."""

        def other(spec: LaunchSpec) -> LaunchSpec:
            return replace(
                spec, argv=tuple(self._module if part == "tasks.inference.worker" else part for part in spec.argv)
            )

        return self._inner.submit([other(spec) for spec in specs])
