"""What a worker is told: the specification of a replica, from the plan, the configuration and the layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from infra.fileroot.batch_sizes import BatchSizeMemory
from infra.fileroot.run_directory import RunDirectory
from infra.jobs.base import Placement
from infra.launchers.placement import engine_threads
from infra.machine.gpus import Device
from schemas.config import EvaluationConfig
from schemas.consistency import WorkerName
from schemas.identity import SampleKey
from schemas.inference import AdapterSpec, EngineSpec, Plan, SetAsideItem, WorkerSpec
from schemas.stand_in import StandInSpec


class ReplicaSettings(NamedTuple):
    """How the replicas of an attempt are laid out."""

    model_path: Path
    """The pinned checkpoint; of an adapter, its base."""
    batch_size: int
    """Most sequences at once, of each replica."""
    engine_python: Path
    """Interpreter of the engine environment."""
    device: Device
    """What the engine computes on."""
    placements: tuple[Placement, ...]
    """Devices and cores, one per replica."""
    canaries: tuple[str, ...] = ()
    """Items that each of them answers first."""
    lengths: Mapping[str, float] = MappingProxyType({})
    """Item to the tokens that its completions are expected to have; empty where nothing is known."""
    memory: BatchSizeMemory | None = None
    """Where a batch size that had to shrink is remembered."""
    adapter: AdapterSpec | None = None
    """The pinned adapter that is applied to it; None for a whole model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLaunch:
    """How the replica is started again."""

    batch_size: int
    """Most sequences at once."""
    reason: str
    """What happened, in one line."""
    alone: tuple[SampleKey, ...] = ()
    """Samples to make first, one at a time."""
    set_aside: tuple[SetAsideItem, ...] = ()
    """Items to generate no more, those of earlier launches included."""
    shrank: bool = False
    """Whether the batch is smaller than before."""
    asks_canaries: bool = True
    """Whether it answers the canaries first. Not after a death before the first sample, as one of them may have been
    the cause: as a sample, it is found."""


def replica_spec(
    run: RunDirectory,
    plan: Plan,
    config: EvaluationConfig,
    settings: ReplicaSettings,
    name: WorkerName,
    launch: NextLaunch,
) -> WorkerSpec:
    """Return what the worker of that name is told about a run; its work is work.parquet in its folder."""
    folder = run.replica_dir(name.attempt or 0, name.replica)
    stand_in, backend = config.engine.stand_in, config.backend
    return WorkerSpec(
        run_id=run.run_id,
        replica=name.replica,
        attempt=name.attempt or 0,
        engine=EngineSpec(
            engine=plan.engine,
            model_path=settings.model_path,
            adapter=settings.adapter,
            dtype=plan.dtype,
            max_model_len=plan.max_model_len,
            batch_size=launch.batch_size,
            tensor_parallel=backend.tensor_parallel,
            pipeline_parallel=backend.pipeline_parallel,
            memory_ratio=config.memory_ratio,
            trust_remote_code=config.engine.trust_remote_code,
            seed=config.seed,
            strict=plan.strict,
            stand_in=stand_in and StandInSpec(**stand_in.model_dump(), answers_path=run.prompts_path),
        ),
        sampling=plan.sampling,
        seed=plan.seed,
        prompts_path=run.prompts_path,
        work_path=folder / "work.parquet",
        num_alone=len(launch.alone),
        set_aside=launch.set_aside,
        canaries=settings.canaries if launch.asks_canaries else (),
        canary_tokens=config.consistency.canary_tokens,
        output_dir=folder,
        num_threads=engine_threads(settings.placements[name.replica], settings.device),
        keeps_completion_ids=config.store.keep_tokens or config.reward_function is not None,
        keeps_logprobs=config.store.keep_tokens,
    )
