"""Whether a checkpoint's class writes text, and whether an engine loads it, by config.json alone.

Which model types the transformers engine knows is asked of transformers itself, and only where there is doubt: its
import takes seconds.
"""

import os
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, cast

from infra.tokenizer.files import JsonObject
from schemas.inference import EngineName

_WITHOUT_HEAD: Final = re.compile(
    r"For(?:SequenceClassification|TokenClassification|QuestionAnswering|MultipleChoice|MaskedLM|PreTraining|"
    r"NextSentencePrediction|ImageClassification|AudioClassification|\w*Reward\w*)$|RewardModel|ValueHead"
)
"""In names of classes that score or label a text, or read it only."""
_BARE: Final = re.compile(r"(?<!LMHead)(?<!Chat)(?<!VL)Model$")
"""Ends of names of classes that stop at the hidden states."""
_WRITES_TEXT: Final = frozenset({"ChatGLMModel"})
"""Classes with a head despite their names."""

_MEDIA_TOKEN: Final = re.compile(r"(?:image|img|video|vision|audio|speech)\w*_token_(?:id|index)$")
"""Keys of config.json that name such tokens."""
_GENERAL_TOKENIZERS: Final = frozenset({"PreTrainedTokenizer", "TokenizersBackend"})
"""Classes for tokenizers of any model, without `Fast`."""


def check_writes_text(config: JsonObject) -> str | None:
    """Return why the class in config.json makes no completions; None where it does, or names none."""
    name = read_architecture(config)
    if name is None or name in _WRITES_TEXT:
        return None
    if config.get("is_encoder_decoder") is True:
        return (
            f"config.json: {name} is an encoder-decoder (is_encoder_decoder true), which no engine here loads; "
            f"evaluate a decoder (…ForCausalLM)"
        )
    if _WITHOUT_HEAD.search(name) or _BARE.search(name):
        return (
            f"config.json: {name} has no language-model head, so it writes no text; evaluate the policy that it was "
            f"trained from or for (…ForCausalLM), or save the model with its head"
        )
    return None


def check_engine_loads(config: JsonObject, engine: EngineName, *, trust_remote_code: bool) -> str | None:
    """Return why the engine does not load the class in config.json; None where it may."""
    model_type = config.get("model_type")
    runs_code = trust_remote_code and "auto_map" in config
    if engine not in ("vllm", "transformers") or runs_code:
        return None
    if config.get("auto_map") and _is_known(model_type) is False:
        return (
            f"config.json: auto_map names Python code of the checkpoint's own, as transformers has no model_type "
            f"{model_type!r}; where you trust that code, set engine.trust_remote_code=true"
        )
    if engine == "transformers" and _may_be_multimodal(config) and _is_causal(model_type) is False:
        return (
            f"config.json: {read_architecture(config)} (model_type {model_type!r}) is not one of the models that "
            f"transformers loads to write text only; set rollout.backend=vllm:d1, which takes text prompts for it"
        )
    return None


def check_tokenizer_loads(
    tokenizer: JsonObject, config: JsonObject, engine: EngineName, *, trust_remote_code: bool
) -> str | None:
    """Return why the engine does not load the tokenizer of a tokenizer_config.json; None where it may."""
    auto_map = tokenizer.get("auto_map")
    own = cast("JsonObject", auto_map).get("AutoTokenizer") if isinstance(auto_map, dict) else auto_map
    if not own or engine not in ("vllm", "transformers") or trust_remote_code:
        return None
    if _has_tokenizer_class(tokenizer.get("tokenizer_class"), config.get("model_type")) is not False:
        return None
    return (
        f"tokenizer_config.json: auto_map names Python code of the checkpoint's own, as transformers has no "
        f"tokenizer_class {tokenizer.get('tokenizer_class')!r}; where you trust that code, set "
        f"engine.trust_remote_code=true, else set tokenizer_path to a folder with a tokenizer that needs none"
    )


def find_media_tokens(config: JsonObject) -> tuple[int, ...] | None:
    """Return the token ids that stand for an image, a video or a sound; None for a model that takes text alone."""
    if not _may_be_multimodal(config):
        return None
    return tuple(
        sorted(value for key, value in config.items() if _MEDIA_TOKEN.search(key) and type(value) is int and value >= 0)
    )


def read_architecture(config: JsonObject) -> str | None:
    """Return the first entry of `architectures`."""
    names = config.get("architectures")
    first = cast("list[object]", names)[0] if isinstance(names, list) and names else None
    return first if isinstance(first, str) else None


def _may_be_multimodal(config: JsonObject) -> bool:
    name = read_architecture(config) or ""
    return "ForConditionalGeneration" in name or any(key.endswith(("vision_config", "audio_config")) for key in config)


def _has_tokenizer_class(name: object, model_type: object) -> bool | None:
    """Return whether transformers has a tokenizer for a model; None where transformers is not installed."""
    classes: Mapping[str, str | None] | None = _read_list("tokenization_auto", "TOKENIZER_MAPPING_NAMES")
    if classes is None:
        return None
    known = {each.removesuffix("Fast") for each in classes.values() if each} | _GENERAL_TOKENIZERS
    return (isinstance(model_type, str) and model_type in classes) or (
        isinstance(name, str) and name.removesuffix("Fast") in known
    )


def _is_known(model_type: object) -> bool | None:
    return _is_listed(model_type, "configuration_auto", "CONFIG_MAPPING_NAMES")


def _is_causal(model_type: object) -> bool | None:
    return _is_listed(model_type, "modeling_auto", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")


def _is_listed(model_type: object, module: str, names: str) -> bool | None:
    """Return whether one of transformers' lists has a model_type; None where transformers is not installed."""
    listed = _read_list(module, names)
    return None if listed is None else isinstance(model_type, str) and model_type in listed


def _read_list(module: str, names: str) -> Any:
    # it warns that it finds no torch, which its lists do without
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        return getattr(import_module(f"transformers.models.auto.{module}"), names)
    except ImportError:
        return None
