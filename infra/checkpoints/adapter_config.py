"""adapter_config.json of peft: what of it decides the model, and what in it neither engine takes.

The keys are those of peft's LoraConfig. Imported by workers too: reads one file and needs pydantic alone.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from infra.tokenizer.files import JsonObject, read_json_object
from schemas.errors import CheckpointError

CONFIG_NAME: Final = "adapter_config.json"
WEIGHTS_NAME: Final = "adapter_model.safetensors"
PICKLE_NAME: Final = "adapter_model.bin"

T = TypeVar("T")

_MAX_BYTES: Final = 8 << 20
"""A configuration has a few kilobytes; one that names each of a thousand modules, less than a megabyte."""

_TAKEN: Final[dict[str, tuple[object, ...]]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False,),
    "use_qalora": (False,),
    "use_bdlora": (False,),
    "lora_bias": (False,),
    "modules_to_save": ([],),
    "target_parameters": ([],),
    "trainable_token_indices": ([], {}),
    "layer_replication": ([],),
    "alora_invocation_tokens": ([],),
    "arrow_config": (),
    "kasa_config": (),
    "monteclora_config": (),
    # the others change the base model's own weights when training starts
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal", "mica", "lora_ga"),
}
"""Keys that change what an adapter means, with the values, beside null, that vLLM and the merge (infra/engines/
lora.py) take: W + scale * B A in linear layers."""


class UnsupportedAdapterError(CheckpointError):
    """The adapter is more than low-rank updates of linear layers."""


def _checked_patterns(patterns: dict[str, T]) -> dict[str, T]:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as exc:
            raise ValueError(f"{pattern!r} is no pattern of module names: {exc}") from exc
    return patterns


_Rank = Annotated[int, Field(ge=1, le=1 << 20, strict=True)]
_Alpha = Annotated[float, Field(allow_inf_nan=False)]


class AdapterConfig(BaseModel):
    """The keys that decide the model; the others do not matter to it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    r: _Rank
    """Rank of the updates."""
    lora_alpha: _Alpha
    """An update counts alpha / rank times."""
    use_rslora: bool = False
    """Whether it counts alpha / sqrt(rank) times instead (Kalajdzievski, arXiv:2312.03732)."""
    fan_in_fan_out: bool = False
    """Whether the base's weights are stored as (in, out)."""
    rank_pattern: Annotated[dict[str, _Rank], AfterValidator(_checked_patterns)] = {}
    """Ranks of the modules whose names end so."""
    alpha_pattern: Annotated[dict[str, _Alpha], AfterValidator(_checked_patterns)] = {}
    """Alphas of the modules whose names end so."""
    base_model_name_or_path: str = ""
    """The model that it is applied to: a folder or a hub id."""
    revision: str | None = None
    """Of that hub id."""

    @property
    def settings(self) -> str:
        """What decides the model, as JSON: the updates' scales, wherever the base lies."""
        return self.model_dump_json(exclude={"base_model_name_or_path", "revision"})

    @property
    def ranks(self) -> frozenset[int]:
        """Every rank that a module may have."""
        return frozenset({self.r, *self.rank_pattern.values()})

    def scale(self, module: str) -> float:
        """Return the factor of a module's update."""
        rank = _matching(self.rank_pattern, module, self.r)
        return _matching(self.alpha_pattern, module, self.lora_alpha) / (math.sqrt(rank) if self.use_rslora else rank)


def read_adapter_config(folder: Path) -> AdapterConfig:
    """Return the adapter's settings.

    Raises:
        CheckpointError: the file cannot be read, or a value is not of its kind.
        UnsupportedAdapterError: it asks for what is not evaluated.
    """
    path = folder / CONFIG_NAME
    if (size := path.stat().st_size) > _MAX_BYTES:
        raise CheckpointError(
            f"{CONFIG_NAME}: {size:,} bytes, at most {_MAX_BYTES:,} are read; save the adapter's configuration again"
        )
    content = read_json_object(path)
    _refuse_unsupported(content)
    try:
        return AdapterConfig.model_validate({key: value for key, value in content.items() if value is not None})
    except ValidationError as exc:
        error = exc.errors()[0]
        key = ".".join(map(str, error["loc"]))
        seen = "absent" if error["type"] == "missing" else f"{_shown(error['input'])}: {error['msg']}"
        raise CheckpointError(f"{CONFIG_NAME}: {key} is {seen}; save the adapter again with peft") from exc


def _refuse_unsupported(content: JsonObject) -> None:
    found = [
        f"{key} is {_shown(content[key])} (evaluated: {' or '.join(map(_shown, (*allowed, None)))})"
        for key, allowed in _TAKEN.items()
        if content.get(key) is not None and content[key] not in allowed
    ]
    if content.get("peft_type") is None:
        raise CheckpointError(f"{CONFIG_NAME}: peft_type is absent, allowed: 'LORA'; save the adapter again with peft")
    if found:
        raise UnsupportedAdapterError(f"{CONFIG_NAME}: {'; '.join(found)}")


def _matching(patterns: Mapping[str, float], module: str, default: float) -> float:
    """Return the value of the first pattern that the module's name ends with, as peft's get_pattern_key does."""
    found = (value for pattern, value in patterns.items() if re.match(rf"(.*\.)?({pattern})$", module))
    return next(found, default)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
