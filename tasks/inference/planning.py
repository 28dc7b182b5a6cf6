"""Decide what a run makes (the plan) and who makes what of it (the work of each replica).

The plan is a pure function of weights, data and settings. The division of work is not part of it: after a crash the
remaining samples are divided anew among however many replicas there are.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from schemas.checkpoint import CheckpointIdentity
from schemas.inference import EngineName, Plan, PlannedItem, RefusedItem, SamplingSpec
from schemas.tables import WORK_SCHEMA

_DEFAULT_BATCH_SIZES: Final[dict[tuple[EngineName, bool], int]] = {
    ("vllm", False): 128,
    ("vllm", True): 256,
    ("transformers", False): 16,
    ("transformers", True): 64,
}
"""(engine, on GPU) to sequences at once: where throughput flattens (docs/performance.md)."""


class SampleKey(NamedTuple):
    """The name of one sample within a run."""

    item_id: str
    repeat: int


class PlanSettings(NamedTuple):
    """The settings that decide samples, beside weights and data."""

    seed: int
    n_samples: int
    engine: EngineName
    dtype: str
    max_model_len: int
    sampling: SamplingSpec
    strict: bool = False


def planned_dtype(dtype: str, engine: EngineName, *, strict: bool, on_gpu: bool) -> str:
    """Return the dtype to ask of `engine`: strict runs take float32, where the batch changes no text.

    vLLM on a GPU has kernels that do not depend on the batch and keeps its dtype (infra/engines/vllm.py).
    """
    return "float32" if strict and not (engine == "vllm" and on_gpu) else dtype


def default_batch_size(engine: EngineName, *, on_gpu: bool) -> int:
    """Return how many sequences `engine` generates at once unless `rollout.max_concurrent_rollouts` says."""
    return _DEFAULT_BATCH_SIZES.get((engine, on_gpu), 64)


def make_plan(
    *,
    identity: CheckpointIdentity,
    dataset: str,
    dataset_version: str,
    items: Sequence[PlannedItem],
    refused: Sequence[RefusedItem],
    settings: PlanSettings,
) -> Plan:
    """Return the plan, its key being a digest over everything else in it."""
    plan = Plan(
        plan_key="",
        seed=settings.seed,
        n_samples=settings.n_samples,
        engine=settings.engine,
        dtype=settings.dtype,
        weight_digest=identity.weight_digest,
        tokenizer_digest=identity.tokenizer_digest,
        chat_template_digest=identity.chat_template_digest,
        dataset=dataset,
        dataset_version=dataset_version,
        sampling=settings.sampling,
        strict=settings.strict,
        max_model_len=settings.max_model_len,
        items=tuple(items),
        refused=tuple(refused),
    )
    key = hashlib.blake2b(plan.model_dump_json().encode(), digest_size=16, person=b"milepost-plan").hexdigest()
    return plan.model_copy(update={"plan_key": key})


def remaining_work(plan: Plan, done: Collection[SampleKey]) -> Iterator[SampleKey]:
    """Yield the samples of `plan` not in `done`, item by item: its repeats share the engine's prefix cache."""
    for item in plan.items:
        for repeat in range(plan.n_samples):
            key = SampleKey(item.item_id, repeat)
            if key not in done:
                yield key


def divide_work(plan: Plan, done: Collection[SampleKey], num_replicas: int) -> list[pa.Table]:
    """Return one WORK_SCHEMA table per replica; together exactly the remaining samples.

    Items are dealt in turn, so that neighbours of like length spread over the replicas. Replicas may get no rows.
    """
    ids: list[list[str]] = [[] for _ in range(num_replicas)]
    repeats: list[list[int]] = [[] for _ in range(num_replicas)]
    replica, previous = -1, None
    for key in remaining_work(plan, done):
        if key.item_id != previous:
            replica, previous = (replica + 1) % num_replicas, key.item_id
        ids[replica].append(key.item_id)
        repeats[replica].append(key.repeat)
    return [
        pa.table({"item_id": names, "repeat": pa.array(numbers, pa.int32())}, schema=WORK_SCHEMA)
        for names, numbers in zip(ids, repeats, strict=True)
    ]
