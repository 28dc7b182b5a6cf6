"""Small checkpoints whose weights are not those of their config.json, in ways that headers alone do not show."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.support.checkpoint_folders import safetensors
from tests.support.engine_environment import ROOT

_HIDDEN: Final = 64
_VOCABULARY: Final = 128
_CONFIG: Final[dict[str, object]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "vocab_size": _VOCABULARY,
    "hidden_size": _HIDDEN,
    "intermediate_size": _HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
_SQUARE: Final = (_HIDDEN, _HIDDEN)
_LAYER: Final = "model.layers.0."
_TENSORS: Final[dict[str, tuple[int, ...]]] = {
    "model.embed_tokens.weight": (_VOCABULARY, _HIDDEN),
    **{f"{_LAYER}self_attn.{name}_proj.weight": _SQUARE for name in "qkvo"},
    **{f"{_LAYER}mlp.{name}_proj.weight": _SQUARE for name in ("gate", "up", "down")},
    f"{_LAYER}input_layernorm.weight": (_HIDDEN,),
    f"{_LAYER}post_attention_layernorm.weight": (_HIDDEN,),
    "model.norm.weight": (_HIDDEN,),
    "lm_head.weight": (_VOCABULARY, _HIDDEN),
}
DAMAGES: Final[dict[str, tuple[str, tuple[int, ...] | None]]] = {
    "without-q": (f"{_LAYER}self_attn.q_proj.weight", None),
    "without-down": (f"{_LAYER}mlp.down_proj.weight", None),
    "without-norm": ("model.norm.weight", None),
    "with-bias": (f"{_LAYER}self_attn.q_proj.bias", (_HIDDEN,)),
    "too-wide": (f"{_LAYER}mlp.up_proj.weight", (2 * _HIDDEN, _HIDDEN)),
}
"""Folder name to the tensor that is damaged, and the shape that it is given; None where it is left out."""


QUANTISED: Final = "quantised, without-norm"
"""Name of the folder of a quantised checkpoint that lacks its last norm, of which vLLM would make ones."""
_GPTQ: Final[dict[str, object]] = {"quantization_config": {"quant_method": "gptq", "bits": 4}}


def make_damaged(root: Path, tokenizer: Path, *, with_quantised: bool = False) -> tuple[Path, ...]:
    """Write one checkpoint per damage into `root`, with the tokenizer of another, and return their folders."""
    folders: list[Path] = []
    damages = DAMAGES | ({QUANTISED: DAMAGES["without-norm"]} if with_quantised else {})
    for name, (tensor, shape) in damages.items():
        folder = root / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(_CONFIG | (_GPTQ if name == QUANTISED else {})))
        tensors = {key: value for key, value in _TENSORS.items() if key != tensor}
        tensors = _as_gptq(tensors) if name == QUANTISED else tensors
        (folder / "model.safetensors").write_bytes(safetensors(tensors | ({} if shape is None else {tensor: shape})))
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(tokenizer / file, folder / file)
        folders.append(folder)
    return tuple(folders)


FAMILIES: Final[Mapping[str, Any]] = json.loads(
    (ROOT / "tests" / "unit" / "infra" / "checkpoints" / "model_families.json").read_text()
)
"""Name to configuration and shapes of a small model of each family, as transformers' class saves it."""
_PROJECTION: Final = re.compile(r"\.(?:\d+\.)+(?!.*\.\d+\.).*(?:proj|dense|fc|mixer|Wo|c_|w[123])\w*\.weight$")
KINDS: Final = ("whole", "quantised", "without", "quantised, without")
"""What is made of each family: as it is, as GPTQ names it, and both without a projection of all layers."""


def lost_projection(family: str) -> str:
    """Return the last projection of a family's layers, with `*` for numbers."""
    names = [name for name in FAMILIES[family]["tensors"] if _PROJECTION.search(name)]
    return re.sub(r"\.\d+\.", ".*.", names[-1])


def make_families(root: Path) -> tuple[Path, ...]:
    """Write headers of each family and kind into `root`, and return their folders."""
    folders: list[Path] = []
    for family, saved in FAMILIES.items():
        lost = lost_projection(family)
        for kind in KINDS:
            tensors = {
                name: tuple(shape)
                for name, shape in saved["tensors"].items()
                if "without" not in kind or re.sub(r"\.\d+\.", ".*.", name) != lost
            }
            config = dict(saved["config"])
            if "quantised" in kind:
                config |= _GPTQ
                tensors = _as_gptq(tensors)
            folder = root / f"{family}: {kind}"
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(config))
            (folder / "model.safetensors").write_bytes(safetensors(tensors))
            folders.append(folder)
    return tuple(folders)


def _as_gptq(tensors: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    named: dict[str, tuple[int, ...]] = {}
    for name, shape in tensors.items():
        if _PROJECTION.search(name) and len(shape) == 2:
            stem = name.removesuffix("weight")
            named |= {f"{stem}qweight": (1, 1), f"{stem}scales": (1, 1), f"{stem}qzeros": (1, 1), f"{stem}g_idx": (1,)}
        else:
            named[name] = shape
    return named
