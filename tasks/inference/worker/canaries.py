"""The worker's side of the canaries: a few items that every replica answers first, to be compared with the others'.

They are asked greedily, together and before any other work, so that each replica computes them in the same batch; what
then differs is the replica. They are journalled apart and are never samples.
"""

from collections.abc import Callable
from typing import Final

from infra.engines.base import Engine, Generation, GenerationRequest, RequestRefusedError
from schemas.consistency import ConsistencyConfig
from schemas.errors import ConfigError
from schemas.identity import prompt_hash, sample_seed
from schemas.inference import CanaryRecord, Plan, WorkerSpec
from schemas.sampling import SamplingSpec
from tasks.inference.exchange.worker_files import append_canary
from tasks.inference.worker.broken_numbers import NumbersCheck

_DEFAULT_CANARIES: Final = 8
"""A wrong model differs in every one; of a replica that errs on 5% of items, 8 show it in one run of three."""


def plan_canaries(plan: Plan, config: ConsistencyConfig, *, num_replicas: int) -> tuple[str, ...]:
    """Return the ids of the items that every replica answers first: the same for every attempt at this plan.

    Raises:
        ConfigError: more canaries are asked for than there are items.
    """
    if config.canaries is not None and config.canaries > len(plan.items):
        raise ConfigError(
            f"consistency.canaries is {config.canaries}, allowed: 0 to {len(plan.items)}, the items that can be "
            "generated; lower it, or leave it out"
        )
    count = config.canaries
    if count is None:
        count = _DEFAULT_CANARIES if num_replicas > 1 else 0
    drawn = sorted(plan.items, key=lambda item: sample_seed(plan.seed, item.item_id, -1))
    return tuple(item.item_id for item in drawn[:count])


def answer_canaries(
    spec: WorkerSpec, engine: Engine, prompt_of: Callable[[str], list[int]], step: Callable[[], list[Generation]]
) -> None:
    """Have `engine`, which must be idle, answer the canaries of `spec`, and journal each as it is finished.

    Args:
        spec: names the canaries.
        engine: takes the requests.
        prompt_of: the token ids of an item.
        step: runs `engine.step`.

    Raises:
        StoreError: the journal cannot be written.
        EngineError: most answers have no finite numbers.
        MilepostError: as `Engine.step`.
    """
    sampling = _greedy(spec.sampling, spec.canary_tokens)
    asked: dict[str, CanaryRecord] = {}
    numbers = NumbersCheck("canaries")
    set_aside = {item.item_id for item in spec.set_aside}
    for item_id in (name for name in spec.canaries if name not in set_aside):
        token_ids = prompt_of(item_id)
        canary = CanaryRecord(item_id=item_id, prompt_hash=prompt_hash(token_ids))
        request = GenerationRequest(
            request_id=f"canary {item_id}",
            prompt_token_ids=token_ids,
            seed=sample_seed(spec.seed, item_id, 0),
            sampling=sampling,
            with_logprobs=True,
        )
        try:
            engine.add(request)
        except RequestRefusedError as exc:
            append_canary(spec.output_dir, canary.model_copy(update={"error": str(exc)}))
            continue
        asked[request.request_id] = canary
    while asked:
        for generation in step():
            numbers.note(asked[generation.request_id].item_id, generation)
            answer = {"text": generation.text, "token_ids": generation.token_ids, "logprobs": generation.logprobs}
            append_canary(spec.output_dir, asked.pop(generation.request_id).model_copy(update=answer))
    numbers.check(is_last=True)


def _greedy(sampling: SamplingSpec, max_new_tokens: int) -> SamplingSpec:
    """Return the likeliest tokens, whatever else shapes the samples; what ends a completion stays."""
    return SamplingSpec(
        temperature=0.0,
        top_p=1.0,
        top_k=-1,
        max_new_tokens=min(max_new_tokens, sampling.max_new_tokens),
        stop=sampling.stop,
        eos_token_ids=sampling.eos_token_ids,
    )
