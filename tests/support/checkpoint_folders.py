"""Small real checkpoint folders, written byte by byte: no torch needed, every number known."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from tests.support.chat_folders import make_family

CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "dtype": "bfloat16",
    "eos_token_id": [7, 9],
    "max_position_embeddings": 1024,
}


def safetensors(tensors: Mapping[str, tuple[int, ...]], *, fill: int = 0, metadata: str = "") -> bytes:
    """The bytes of a BF16 shard with tensors of these shapes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt", "note": metadata}}
    position = 0
    for name, shape in tensors.items():
        size = 2
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes([fill]) * position


def make_checkpoint(folder: Path, *, num_shards: int = 1, fill: int = 0) -> Path:
    """A complete checkpoint of 12 parameters per shard."""
    make_family("chatml", folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "generation_config.json").write_text('{"eos_token_id": 5}')
    if num_shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors({"a": (3, 4)}, fill=fill))
        return folder
    weight_map: dict[str, str] = {}
    for shard in range(num_shards):
        name = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        (folder / name).write_bytes(safetensors({f"layer.{shard}": (3, 4)}, fill=fill + shard))
        weight_map[f"layer.{shard}"] = name
    index = {"metadata": {"total_size": 24 * num_shards}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


LAYERS: dict[str, tuple[int, int]] = {
    "model.layers.0.self_attn.q_proj": (6, 4),
    "model.layers.0.mlp.down_proj": (4, 8),
}
"""Linear layers of the small base, by name: (out, in)."""


def make_base(folder: Path, *, fill: int = 0) -> Path:
    """A complete checkpoint with linear layers that an adapter can be for."""
    make_checkpoint(folder)
    weights = {f"{name}.weight": shape for name, shape in LAYERS.items()}
    (folder / "model.safetensors").write_bytes(safetensors(weights, fill=fill))
    return folder


def updates(rank: int = 2) -> dict[str, tuple[int, ...]]:
    """The tensors of an adapter for the small base, by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (num_out, num_in) in LAYERS.items():
        shapes[f"base_model.model.{name}.lora_A.weight"] = (rank, num_in)
        shapes[f"base_model.model.{name}.lora_B.weight"] = (num_out, rank)
    return shapes


def make_adapter(folder: Path, base: Path | str | None, *, fill: int = 1, **changes: object) -> Path:
    """A complete adapter of rank 2 as peft saves it; `changes` are made to its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "base_model_name_or_path": None if base is None else str(base), "r": 2}
    config |= {"lora_alpha": 4, "bias": "none", "target_modules": ["q_proj", "down_proj"], "modules_to_save": None}
    (folder / "adapter_config.json").write_text(json.dumps(config | changes))
    (folder / "adapter_model.safetensors").write_bytes(safetensors(updates(), fill=fill))
    return folder
