"""Keys outside the model that decide what is generated or scored: never ignored.

Each passes with a value that changes nothing and is refused by name with any other. Keys that evaluation takes its own
values from (`DERIVED_KEYS`) are read by schemas/config/derivation.py.
"""

import re
from typing import Final

from schemas.chat import THINKING

_NOT_SET: Final[tuple[object, ...]] = (None, "", [], {}, "none", "None")
"""Values by which training configs say that a key is not used."""

_FALSE: Final[tuple[object, ...]] = (False, *_NOT_SET)
_ONE: Final[tuple[object, ...]] = (1, *_NOT_SET)

_UNUSED: Final[dict[str, str]] = {
    "": "agent_builder_path agent_builder_kwargs agent_run_args auto_eval_config chat_template eval_workflow_kwargs "
    "econfig gate judge_engine max_tokens_per_trajectory non_think_mode reward_fn_kwargs task_timeouts tir tools "
    "workflow_kwargs",
    "scheduler": "reward_functioncall_config reward_model_path",
    "rollout": "agent agent_run_args api_url eval_workflow_kwargs openai workflow_kwargs",
    "valid_dataset": "dataset_kwargs",
    "vllm": "additional_config additional_engine_args chat_template code_revision hf_config_path hf_overrides "
    "lora_modules logits_processors override_generation_config quantization revision rope_scaling rope_theta "
    "speculative_config tokenizer_revision",
    "sglang": "chat_template lora_paths preferred_sampling_params quantization revision speculative_algorithm "
    "torchao_config",
}
"""Keys that change nothing only where they are not set, by section."""

_SAMPLING: Final[dict[str, tuple[object, ...]]] = {
    "best_of": (1, None),
    "ignore_eos": (False, None),
    "length_penalty": (1, None),
    "logit_bias": (None, {}),
    "n": (1, None),
    "no_repeat_ngram_size": (0, None),
    "skip_special_tokens": (True, None),
    "typical_p": (1, None),
    "use_beam_search": (False, None),
}
"""Keys of gconfig and eval_gconfig."""

DECIDING_KEYS: Final[dict[str, tuple[object, ...]]] = {
    **{f"{section}.{name}".removeprefix("."): _NOT_SET for section, names in _UNUSED.items() for name in names.split()},
    "auto_eval": _FALSE,
    "encourage_completion_reward": _FALSE,
    "filter_uniform_reward": _FALSE,
    "max_iteration": _ONE,
    "max_llm_calls_per_run": _ONE,
    "max_turns": _ONE,
    "n_trajs": _ONE,
    "selection": ("full", *_NOT_SET),
    "actor.init_from_scratch": _FALSE,
    "actor.is_critic": _FALSE,
    "valid_dataset.drop_last": _FALSE,
    "vllm.calculate_kv_scales": _FALSE,
    "vllm.generation_config": ("vllm", *_NOT_SET),
    "vllm.kv_cache_dtype": ("auto", *_NOT_SET),
    "vllm.kv_cache_type": ("auto", *_NOT_SET),
    "vllm.load_format": ("auto", "safetensors", *_NOT_SET),
    "vllm.model_impl": ("auto", *_NOT_SET),
    "vllm.tokenizer_mode": ("auto", *_NOT_SET),
    "vllm.trust_remote_code": _FALSE,
    "sglang.allow_auto_truncate": _FALSE,
    "sglang.enable_custom_logit_processor": _FALSE,
    "sglang.json_model_override_args": ("{}", *_NOT_SET),
    "sglang.kv_cache_dtype": ("auto", *_NOT_SET),
    "sglang.load_format": ("auto", "safetensors", *_NOT_SET),
    "sglang.model_impl": ("auto", *_NOT_SET),
    "sglang.tokenizer_mode": ("auto", *_NOT_SET),
    "sglang.trust_remote_code": _FALSE,
    **{f"{section}.{name}": neutral for section in ("gconfig", "eval_gconfig") for name, neutral in _SAMPLING.items()},
}
"""Dotted keys with the values that change nothing, the one to show first."""

DERIVED_KEYS: Final = frozenset(
    {"eval_gconfig.max_tokens", "gconfig.max_tokens", "sglang.dtype", "valid_dataset.reward_fn", "vllm.dtype"}
)
"""Dotted keys that evaluation takes values of its own from."""

WORKFLOW_SECTIONS: Final = ("eval_workflow_kwargs", "workflow_kwargs")
"""Sections whose `enable_thinking` becomes chat.template_kwargs.enable_thinking, the one that wins first."""

ENGINE_SECTIONS: Final = ("vllm", "sglang")
"""Sections that are read only where the backend is the engine of that name."""

_DEFAULT_AGENT: Final = "areal.experimental.openai.proxy.online_agent._OnlineAgent"
"""What AReaL writes into a saved configuration whose file names no agent."""
_WORDS_AT_TOP: Final = re.compile(
    r"agent|chat|decod|few_?shot|generat|gconfig|grad(er|ing)|judge|prompt|reward|sampling|scor|suffix|template|"
    r"think|tool|traj|turns|verif|workflow"
)
_WORDS_IN_SECTIONS: Final = re.compile(
    r"adapter|agent|chat|dtype|lora_path|override|penalt|prompt|quant|reward|revision|rope|sampling_param|speculative|"
    r"template|tool|truncat|workflow"
)


def neutral_values(dotted: str) -> tuple[object, ...] | None:
    """Return the values with which the key changes neither generation nor scores; None when any value does so.

    A key that no list knows counts as deciding when its name has a word of generation or scoring in it.
    """
    section, _, name = dotted.rpartition(".")
    words = _WORDS_IN_SECTIONS if section else _WORDS_AT_TOP
    return DECIDING_KEYS.get(dotted) or ((None, False, *_NOT_SET[1:]) if words.search(name.lower()) else None)


def changes_nothing(dotted: str, value: object, neutral: tuple[object, ...]) -> bool:
    """Return whether the key is as good as absent with this value."""
    if dotted == "rollout.agent" and isinstance(value, dict):
        agent: dict[object, object] = value
        return not agent or (agent.get("agent_cls_path") == _DEFAULT_AGENT and agent.get("mode", "inline") == "inline")
    if dotted in WORKFLOW_SECTIONS and isinstance(value, dict):
        kwargs: dict[object, object] = value
        return not kwargs.keys() - {THINKING}
    return any(value == allowed and isinstance(value, bool) == isinstance(allowed, bool) for allowed in neutral)
