"""How large the KV cache of a CPU engine should be, from config.json and the weight files alone."""

import json
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import EngineError
from schemas.inference import EngineSpec

_DEFAULT_CPU_RATIO: Final = 0.5
"""Share of the free memory that weights and cache take together, when memory_ratio is not set: the machine's other
processes and the activations live in the rest."""
_BLOCK_TOKENS: Final = 128
"""vLLM's block on a CPU; a sequence takes whole blocks."""
_MIN_BYTES: Final = 64 << 20
_DTYPE_BYTES: Final = {"float32": 4, "float": 4, "float64": 8, "double": 8}


class CacheSize(NamedTuple):
    """Sizes in bytes."""

    granted: int
    one_sequence: int
    weights: int


class _ModelShape(BaseModel):
    """The keys of config.json that decide the cache; the others do not matter here."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    num_hidden_layers: int
    num_attention_heads: int
    hidden_size: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    dtype: str | None = None
    torch_dtype: str | None = None

    def bytes_per_token(self, dtype: str) -> int:
        """Key and value of every layer; an upper bound where layers slide or share."""
        name = (self.dtype or self.torch_dtype or "bfloat16") if dtype == "auto" else dtype
        head_dim = self.head_dim or self.hidden_size // self.num_attention_heads
        heads = self.num_key_value_heads or self.num_attention_heads
        return 2 * self.num_hidden_layers * heads * head_dim * _DTYPE_BYTES.get(name, 2)


def kv_cache_bytes(spec: EngineSpec, available: int) -> CacheSize:
    """Return the cache for `spec.batch_size` sequences of full length, within the share of `available` bytes.

    Raises:
        EngineError: config.json does not say how large a token's keys and values are.
    """
    shape = _read_shape(spec.model_path / "config.json")
    per_token = shape.bytes_per_token(spec.dtype)
    blocks = -(-spec.max_model_len // _BLOCK_TOKENS) + 1
    one_sequence = blocks * _BLOCK_TOKENS * per_token
    weights = sum(path.stat().st_size for path in spec.model_path.glob("*.safetensors"))
    room = int(available * (spec.memory_ratio or _DEFAULT_CPU_RATIO)) - weights
    wanted = max(_MIN_BYTES, (spec.batch_size + 1) * one_sequence)  # one block of vLLM's own is never handed out
    return CacheSize(granted=min(wanted, room), one_sequence=one_sequence, weights=weights)


def _read_shape(path: Path) -> _ModelShape:
    try:
        content = json.loads(path.read_bytes())
        # vision-language models keep the language model's shape one level down
        return _ModelShape.model_validate(content.get("text_config", content))
    except (OSError, ValueError, AttributeError, ValidationError) as exc:
        raise EngineError(f"{path} does not say how large the KV cache is: {exc}; check the checkpoint") from exc
