"""A session of a run that has begun, without workers."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from infra.fileroot.batch_sizes import BatchSizeMemory, RunKind
from infra.jobs.base import Placement
from infra.machine.provenance import collect_provenance
from schemas.config import EvaluationConfig
from schemas.identity import SampleKey
from schemas.inference import WorkerSpec
from schemas.tables import PROMPT_SCHEMA
from tasks.inference.exchange.work_table import sample_keys
from tasks.inference.planning.replica_spec import ReplicaSettings
from tasks.inference.runs.open_run import open_run
from tasks.inference.runs.session import RunSession
from tests.support.plans import plan_of

KIND = RunKind(
    architecture="", num_parameters=None, engine="vllm", device="cpu", gpus_per_replica=0, memory=None,
    memory_ratio=None, dtype="auto", token_budget=1024,
)  # fmt: skip


PROVENANCE = collect_provenance()


def start(fileroot: Path, *, num_replicas: int = 1, num_items: int = 6, batch_size: int = 8) -> RunSession:
    config = EvaluationConfig.model_validate(
        {
            "actor": {"path": "model"},
            "cluster": {"fileroot": str(fileroot)},
            "valid_dataset": {"path": "questions.jsonl"},
        }
    )
    settings = ReplicaSettings(
        model_path=fileroot,
        batch_size=batch_size,
        engine_python=Path("python"),
        device="cpu",
        placements=(Placement(num_gpus=0, num_cpus=1),) * num_replicas,
        memory=BatchSizeMemory(fileroot, KIND, configured=batch_size, grow_after=3),
    )
    prompts: pa.Table = PROMPT_SCHEMA.empty_table()
    record = open_run(config, plan_of(num_items, 2), prompts, global_step=None, now=datetime.now(UTC))
    return RunSession(record, config, settings, PROVENANCE)


def work_of(spec: WorkerSpec) -> list[SampleKey]:
    return sample_keys(pq.read_table(spec.work_path))
