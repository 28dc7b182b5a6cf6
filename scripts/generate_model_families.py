"""Writes the parameter names and shapes of small models as transformers' own classes have them, built without weights.

Run by the engine environment: `.venv-engine/bin/python scripts/generate_model_families.py`. The result is what
tests/unit/infra/checkpoints/test_structure.py holds the check of a checkpoint's headers against.
"""

# torch and transformers' models have no types in the controller's environment, where this file is checked:
# pyright: reportMissingImports=false

import json
import os
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).parents[1] / "tests/unit/infra/checkpoints/model_families.json"

_SMALL: Final[dict[str, Any]] = {
    "vocab_size": 96, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 4,
}  # fmt: skip
_FALCON: Final[dict[str, Any]] = {"vocab_size": 96, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4}
_DEEPSEEK: Final[dict[str, Any]] = {
    **_SMALL, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "moe_intermediate_size": 8, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4, "v_head_dim": 4,
}  # fmt: skip
FAMILIES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "llama": ("llama", _SMALL),
    "llama with biases": ("llama", {**_SMALL, "attention_bias": True, "mlp_bias": True}),
    "llama, tied": ("llama", {**_SMALL, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", _SMALL),
    "qwen3, tied": ("qwen3", {**_SMALL, "tie_word_embeddings": True}),
    "qwen2_moe with dense layers": ("qwen2_moe", {**_SMALL, "num_experts": 4, "mlp_only_layers": [0, 2]}),
    "mixtral": ("mixtral", {**_SMALL, "num_local_experts": 4}),
    "deepseek_v3": ("deepseek_v3", _DEEPSEEK),
    "qwen3_next": ("qwen3_next", {**_SMALL, "num_hidden_layers": 4, "num_experts": 2}),
    "gpt_oss": ("gpt_oss", {**_SMALL, "num_local_experts": 2}),
    "gpt2": ("gpt2", {"vocab_size": 96, "n_embd": 16, "n_layer": 3, "n_head": 4}),
    "gpt_neox": ("gpt_neox", _SMALL),
    "opt with a projection": ("opt", {**_SMALL, "word_embed_proj_dim": 8, "ffn_dim": 24}),
    "falcon": ("falcon", _FALCON),
    "phi": ("phi", _SMALL),
    "phi3": ("phi3", {**_SMALL, "pad_token_id": 0}),
    "gemma2": ("gemma2", _SMALL),
    "gemma4 with shared keys": (
        "gemma4_text",
        {**_SMALL, "num_kv_shared_layers": 1, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 96},
    ),
    "bloom": ("bloom", {"vocab_size": 96, "hidden_size": 16, "n_layer": 3, "n_head": 4}),
    "jamba": ("jamba", {**_SMALL, "num_hidden_layers": 8, "num_experts": 2}),
    "bamba": ("bamba", {**_SMALL, "attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_head": 8}),
    "lfm2": ("lfm2", {**_SMALL, "layer_types": ["conv", "full_attention", "conv"]}),
    "mamba": ("mamba", {"vocab_size": 96, "hidden_size": 16, "num_hidden_layers": 3}),
    "modernbert-decoder": ("modernbert-decoder", {**_SMALL, "pad_token_id": 0}),
}
"""By name: model_type and what its configuration changes."""


def describe(model_type: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return config.json of a model, and its tensors' shapes by the names that a checkpoint has."""
    import torch
    from transformers.core_model_loading import revert_weight_conversion
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    config: Any = CONFIG_MAPPING[model_type](**changes)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    saved = {name: value for name, value in model.state_dict().items() if name not in model.all_tied_weights_keys}
    tensors: dict[str, Any] = revert_weight_conversion(model, saved)
    config.architectures = [type(model).__name__]
    return {
        "config": json.loads(config.to_json_string()),
        "tensors": {name: list(tensor.shape) for name, tensor in tensors.items()},
    }


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    lines = [f"{json.dumps(name)}: {json.dumps(describe(*family))}" for name, family in FAMILIES.items()]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")
