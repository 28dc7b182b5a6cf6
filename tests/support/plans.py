"""A plan of any size."""

from schemas.checkpoint import CheckpointIdentity
from schemas.inference import Plan, PlannedItem, RefusedItem
from schemas.sampling import SamplingSpec
from tasks.inference.planning.plan import (
    PlanSettings,
    make_plan,
)


def plan_of(num_items: int, n_samples: int, *, seed: int = 1, num_refused: int = 0) -> Plan:
    return make_plan(
        identity=CheckpointIdentity(
            weight_digest="w", tokenizer_digest="t", chat_template_digest="c", model_config_digest="m"
        ),
        dataset="toy",
        dataset_version="v1",
        items=[PlannedItem(item_id=f"i{n}", prompt_hash=f"h{n}", num_prompt_tokens=n + 1) for n in range(num_items)],
        refused=[RefusedItem(item_id=f"r{n}", prompt_hash=f"x{n}", reason="too long") for n in range(num_refused)],
        settings=PlanSettings(
            seed=seed,
            n_samples=n_samples,
            engine="vllm",
            dtype="auto",
            max_model_len=512,
            sampling=SamplingSpec(temperature=1.0, top_p=1.0, top_k=-1, max_new_tokens=16, eos_token_ids=(2,)),
        ),
    )
