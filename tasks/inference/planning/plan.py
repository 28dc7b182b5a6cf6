"""Decide what a run makes (the plan) and who makes what of it (the work of each replica).

The plan is a pure function of weights, data and settings. The division of work is not part of it: after a crash the
remaining samples are divided anew among however many replicas there are.
"""

import hashlib
import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import pyarrow as pa

from schemas.checkpoint import CheckpointIdentity
from schemas.identity import SampleKey
from schemas.inference import EngineName, Plan, PlannedItem, RefusedItem
from schemas.sampling import SamplingSpec
from schemas.stand_in import StandInConfig
from tasks.inference.exchange.work_table import work_table

_DEFAULT_BATCH_SIZES: Final[dict[tuple[EngineName, bool], int]] = {
    ("vllm", False): 128,
    ("vllm", True): 256,
    ("transformers", False): 16,
    ("transformers", True): 64,
}
"""(engine, on GPU) to sequences at once: where throughput flattens (docs/performance.md)."""


class PlanSettings(NamedTuple):
    """The settings that decide samples, beside weights and data."""

    seed: int
    n_samples: int
    engine: EngineName
    dtype: str
    max_model_len: int
    sampling: SamplingSpec
    strict: bool = False
    stand_in: StandInConfig | None = None
    num_skipped_rows: int = 0


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
        model_config_digest=identity.model_config_digest,
        dataset=dataset,
        dataset_version=dataset_version,
        num_skipped_rows=settings.num_skipped_rows,
        sampling=settings.sampling,
        strict=settings.strict,
        stand_in=settings.stand_in and settings.stand_in.decisive,
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


def divide_work(
    plan: Plan,
    done: Collection[SampleKey],
    num_replicas: int,
    lengths: Mapping[str, float] | None = None,
) -> list[pa.Table]:
    """Return one WORK_SCHEMA table per replica; together exactly the remaining samples. Replicas may get no rows.

    `lengths`: item to the tokens that its completions are expected to have. With them the longest items go first, each
    to the replica that has the least to do (LPT: at most 4/3 of the best makespan; Graham, Bounds on multiprocessing
    timing anomalies, SIAM J. Appl. Math. 17, 1969, section 2). Without, items are dealt in turn.
    """
    items = [(item_id, [key.repeat for key in keys]) for item_id, keys in _by_item(remaining_work(plan, done))]
    shares: list[list[tuple[str, list[int]]]] = [[] for _ in range(num_replicas)]
    if lengths:
        usual = sum(lengths.values()) / len(lengths)
        loads = [(0.0, replica) for replica in range(num_replicas)]  # sorted: a heap
        for item in sorted(items, key=lambda item: len(item[1]) * lengths.get(item[0], usual), reverse=True):
            load, replica = loads[0]
            shares[replica].append(item)
            heapq.heapreplace(loads, (load + len(item[1]) * lengths.get(item[0], usual), replica))
    else:
        for number, item in enumerate(items):
            shares[number % num_replicas].append(item)
    return [
        work_table([SampleKey(item_id, repeat) for item_id, repeats in share for repeat in repeats]) for share in shares
    ]


def _by_item(keys: Iterator[SampleKey]) -> Iterator[tuple[str, Iterator[SampleKey]]]:
    return groupby(keys, key=lambda key: key.item_id)
