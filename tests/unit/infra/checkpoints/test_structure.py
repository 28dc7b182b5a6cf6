"""Headers held against config.json: what transformers' classes name is accepted, and each way to lose weights is named.

The families' names and shapes are written by scripts/generate_model_families.py.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from infra.checkpoints.safetensors_header import Tensor
from infra.checkpoints.structure import check_structure, find_embedding

FAMILIES: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("model_families.json").read_text())
Tensors = dict[str, Tensor]
Config = dict[str, Any]


def _tensor(*shape: int, dtype: str = "BF16") -> Tensor:
    return Tensor(dtype, shape, math.prod(shape), 2 * math.prod(shape))


def _family(name: str) -> tuple[Config, Tensors]:
    return dict(FAMILIES[name]["config"]), {key: _tensor(*shape) for key, shape in FAMILIES[name]["tensors"].items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_names_of_a_class_are_accepted(name: str) -> None:
    config, tensors = _family(name)
    assert check_structure(config, tensors) == []
    embedding = find_embedding(tensors)
    assert embedding is not None
    assert embedding.num_rows == config["vocab_size"]


def _quantised(suffixes: dict[str, str]) -> Callable[[Tensors], Tensors]:
    """Name the linear weights of all layers but the first as a method does: kept or replaced, with others beside."""

    def change(tensors: Tensors) -> Tensors:
        changed: Tensors = {}
        for name, tensor in tensors.items():
            if len(tensor.shape) != 2 or ".layers." not in name or ".layers.0." in name:
                changed[name] = tensor
                continue
            for suffix, dtype in suffixes.items():
                changed[name.removesuffix("weight") + suffix] = _tensor(*tensor.shape, dtype=dtype)
        return changed

    return change


def _mtp(tensors: Tensors) -> Tensors:
    return {**tensors, "model.layers.3.eh_proj.weight": _tensor(16, 32), "model.layers.3.enorm.weight": _tensor(16)}


def _masks(tensors: Tensors) -> Tensors:
    return tensors | {f"transformer.h.{number}.attn.bias": _tensor(1, 1, 8, 8, dtype="U8") for number in range(3)}


def _without_prefix(tensors: Tensors) -> Tensors:
    return {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}


def _vision(tensors: Tensors) -> Tensors:
    tower = {f"model.visual.blocks.{number}.attn.qkv.weight": _tensor(600, 200) for number in range(2)}
    return {name.replace("model.", "model.language_model.", 1): value for name, value in tensors.items()} | tower


_PACKED: Final[Config] = {"quantization_config": {}}


@pytest.mark.parametrize(
    ("family", "change", "settings"),
    [
        ("llama", _quantised({"qweight": "I32", "qzeros": "I32", "scales": "F16", "g_idx": "I32"}), _PACKED),
        ("llama", _quantised({"weight": "F8_E4M3", "weight_scale_inv": "F32"}), _PACKED),
        ("llama", _quantised({"weight": "F8_E4M3", "weight_scale": "F32", "input_scale": "F32"}), _PACKED),
        ("llama", _quantised({"weight_packed": "I32", "weight_scale": "BF16", "weight_shape": "I64"}), _PACKED),
        ("qwen2", _quantised({"weight": "U8", "weight.absmax": "U8", "weight.quant_map": "F32"}), _PACKED),
        ("mixtral", _quantised({"qweight": "I32", "scales": "F16"}), _PACKED),
        ("deepseek_v3", _mtp, {"num_nextn_predict_layers": 1}),
        ("gpt2", _masks, {}),
        ("gpt2", _without_prefix, {}),
        ("bloom", _without_prefix, {}),
        ("qwen2", _vision, {"vision_config": {"depth": 2}}),
        ("llama", dict, {"eos_token_id": [1, 2, 3]}),
        ("llama, tied", lambda tensors: tensors | {"lm_head.weight": _tensor(96, 16)}, {}),
        ("llama", lambda tensors: _without("layers.1.self_attn.k_proj")(tensors), {"model_type": "hunyuan"}),
    ],
)  # fmt: skip
def test_the_names_of_other_layouts_are_accepted(
    family: str, change: Callable[[Tensors], Tensors], settings: Config
) -> None:
    config, tensors = _family(family)
    assert check_structure({**config, **settings}, change(tensors)) == []


def _renamed(prefix: str, anchor: str = "") -> Callable[[Tensors], Tensors]:
    return lambda tensors: {
        name.replace(anchor, anchor + prefix, 1) if anchor else prefix + name: value for name, value in tensors.items()
    }


def _without(part: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: value for name, value in tensors.items() if part not in name}


def _reshaped(part: str, *shape: int) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: _tensor(*shape) if part in name else value for name, value in tensors.items()}


def _with(name: str, *shape: int) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: _tensor(*shape)}


@pytest.mark.parametrize(
    ("family", "change", "settings", "messages"),
    [
        ("llama", _renamed("_orig_mod."), {}, ["_orig_mod.model.embed_tokens.weight: 30 of 30", "torch.compile: save"]),
        ("llama", _renamed("module."), {}, ["module.model.", "`model.module`"]),
        ("llama", _renamed("base_model.model."), {}, ["merge_and_unload"]),
        ("llama", _renamed("_orig_mod.", "layers.1."), {}, ["model.layers.1._orig_mod.", "9 of 30"]),
        ("gpt2", _renamed("_checkpoint_wrapped_module.", "h.1."), {}, ["activation checkpointing"]),
        ("llama", _renamed("base_layer.", "q_proj."), {}, ["3 of 30", "merge_and_unload"]),
        ("llama", _with("v_head.summary.weight", 1, 16), {}, ["v_head.summary.weight", "reward or value model"]),
        ("llama", _with("score.weight", 1, 16), {}, ["score.weight"]),
        ("llama", _without(".layers.1."), {}, ["model.layers.1: no tensor of 1 of the 3", "num_hidden_layers"]),
        ("gpt2", _without(".h.2."), {}, ["transformer.h.2: no tensor", "n_layer"]),
        ("llama", dict, {"num_hidden_layers": 2}, ["model.layers.2: more than the 2 layers", "not be evaluated"]),
        ("llama", dict, {"num_hidden_layers": 5}, ["model.layers.3, model.layers.4: no tensor of 2 of the 5"]),
        ("llama", dict, {"num_hidden_layers": 10**9}, ["layers.5 and 999999994 more: no tensor of 999999997 of the"]),
        ("gpt2", dict, {"n_layer": 2}, ["transformer.h.2: more than the 2 layers"]),
        ("deepseek_v3", dict, {"num_hidden_layers": 2}, ["model.layers.2: more than the 2"]),
        ("llama", _without("layers.1.self_attn.q_proj"), {}, ["model.layers.1.self_attn.q_proj.weight: not there"]),
        ("llama", _without("layers.0.mlp.down_proj"), {}, ["model.layers.0.mlp.down_proj.weight: not there"]),
        ("qwen2", _without("layers.2.self_attn.k_proj.bias"), {}, ["k_proj.bias", "layers.0 has it"]),
        ("mixtral", _without("layers.1.block_sparse_moe.experts.2.w1"), {}, ["experts.2.w1.weight: not there"]),
        ("mixtral", _without("experts.3."), {}, ["experts.3", "num_local_experts 4"]),
        ("mixtral", dict, {"num_local_experts": 10**9}, ["experts.4.w3 and 2999999985 more: not there"]),
        ("mixtral", dict, {"num_local_experts": 2}, ["experts.3", "num_local_experts 2"]),
        ("jamba", _without("layers.2.mamba.A_log"), {}, ["model.layers.2.mamba.A_log: not there"]),
        ("llama", _reshaped("layers.2.mlp.up_proj", 20, 16), {}, ["up_proj.weight: of shape [20, 16]", "[24, 16]"]),
        ("llama", _without("lm_head"), {}, ["lm_head.weight: not there", "tie_word_embeddings"]),
        ("llama", _without("embed_tokens"), {}, ["no token embedding among the 29 tensors"]),
        ("llama, tied", _without("embed_tokens"), {}, ["no token embedding"]),
        ("llama", _reshaped("", 0), {}, ["model.embed_tokens.weight: of shape [0]", "30 of 30", "zero_to_fp32"]),
        ("llama", _reshaped("q_proj", 0), {}, ["layers.0.self_attn.q_proj.weight: of shape [0]", "3 of 30"]),
        ("llama", dict, {"vocab_size": 97}, ["model.embed_tokens.weight: 96 rows", "vocab_size 97"]),
        ("llama", dict, {"vocab_size": 90}, ["96 rows", "vocab_size 90"]),
        ("llama", dict, {"hidden_size": 32}, ["16 columns", "hidden_size 32"]),
        ("gpt2", dict, {"n_embd": 32}, ["16 columns", "n_embd 32"]),
    ],
)  # fmt: skip
def test_weights_that_are_not_there_are_named(
    family: str, change: Callable[[Tensors], Tensors], settings: Config, messages: list[str]
) -> None:
    config, tensors = _family(family)
    problems = check_structure({**config, **settings}, change(tensors))
    assert len(problems) == 1, problems
    assert all(message in problems[0] for message in messages), problems[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_prefix_is_found_on_every_family(name: str) -> None:
    config, tensors = _family(name)
    assert check_structure(config, _renamed("_orig_mod.")(tensors))
