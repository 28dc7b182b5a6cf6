"""What evaluation takes from keys of training configs under another name: older spellings, and keys of other sections.

Nothing is dropped on the way: what cannot be taken over as it is meant is a problem that names the key.
"""

import re
from typing import Final

from schemas.backend import parse_backend
from schemas.chat import THINKING
from schemas.config.deciding_keys import ENGINE_SECTIONS, WORKFLOW_SECTIONS
from schemas.config.keys import KeyPath, Tree
from schemas.config.origins import Origins, show_value
from schemas.config.values import ValueReader
from schemas.errors import ConfigError
from schemas.evaluation import EvaluationConfig

_BACKEND: Final = ("rollout", "backend")
_ALLOCATION: Final = ("allocation_mode",)
_REWARD: Final = ("reward_fn",)
_REWARD_SOURCES: Final = (("valid_dataset", "reward_fn"), ("reward_fn_path",))
_DTYPE: Final = ("actor", "dtype")
_TEMPLATE_KWARGS: Final = ("chat", "template_kwargs")
_THINKING: Final = tuple((section, THINKING) for section in WORKFLOW_SECTIONS)
_MAX_LENGTH: Final = ("valid_dataset", "max_length")
_MAX_TOKENS: Final = (("eval_gconfig", "max_tokens"), ("gconfig", "max_tokens"))
_INFERENCE: Final = re.compile(r"(vllm|sglang)(\[[^\]]*\])?[:.]([^+|]*)")
_WORD: Final = re.compile(r"[A-Za-z]{2,}")
_TRAINING_WORDS: Final = frozenset({"archon", "attn", "cpu", "eval", "ffn", "fsdp", "megatron"})
_DTYPE_NAMES: Final = {"half": "float16", "float": "float32"}


def derive_values(values: Tree, reader: ValueReader, origins: Origins) -> list[str]:
    """Fill in what the file says under another key; return what is wrong with that."""
    if values.get("tokenizer_path") == "":
        del values["tokenizer_path"]  # how a saved training config says that it is not set
    return [
        *_derive_backend(values, reader, origins),
        *_derive_reward(values, reader, origins),
        *_derive_dtype(values, reader, origins),
        *_derive_thinking(values, reader, origins),
    ]


def limit_to_max_tokens(
    config: EvaluationConfig, reader: ValueReader, origins: Origins
) -> tuple[EvaluationConfig, list[str]]:
    """Return `config` with prompts short enough for gconfig.max_tokens, the limit of prompt and completion together.

    AReaL draws fewer tokens after a long prompt. Here such an item is refused by its length, as all completions of a
    run have one limit.
    """
    path = next((path for path in _MAX_TOKENS if reader.lookup(path) is not None), None)
    if path is None:
        return config, []
    limit, name, drawn = reader.lookup(path), ".".join(path), config.generation.max_new_tokens
    if isinstance(limit, bool) or not isinstance(limit, int) or limit <= drawn:
        problem = (
            f"{name} = {show_value(limit)} ({origins.of(path)}): it limits prompt and completion together; allowed: a "
            f"whole number above max_new_tokens, {drawn}; raise it, or lower max_new_tokens"
        )
        return config, [problem]
    room, dataset = limit - drawn, config.valid_dataset
    if dataset.max_length is not None and dataset.max_length <= room:
        return config, []
    origins.derived[_MAX_LENGTH] = path
    return config.model_copy(update={"valid_dataset": dataset.model_copy(update={"max_length": room})}), []


def backend_of_allocation(text: str) -> str | None:
    """Return the backend of the inference part of AReaL's older `allocation_mode`; None when it is training alone.

    `sglang.d4p1t1+d4p1t1`, `sglang:d4+fsdp:d4` and `vllm[rollout]:d2t2|fsdp:d4` all hold one.

    Raises:
        ConfigError: there is an inference part that is no backend, or a word that names no training engine.
    """
    match = _INFERENCE.match(text.strip()) or re.search(rf"(?<=[+|]){_INFERENCE.pattern}", text.strip())
    rest = text if match is None else text.replace(match[0], "", 1)
    unread = [word for word in _WORD.findall(re.sub(r"\[[^\]]*\]", "", rest)) if word not in _TRAINING_WORDS]
    if unread:
        raise ConfigError(
            f"{show_value(text)}: {unread[0]!r} is neither an inference engine at the start of a part nor one of "
            f"training; allowed: parts joined by + or |, one of them vllm:DIMENSIONS or sglang:DIMENSIONS"
        )
    if match is None:
        return None
    dimensions = re.sub(r"m(?=[0-9])", "t", match[3].strip())  # the oldest configs write m, model parallel, for t
    return str(parse_backend(f"{match[1]}{match[2] or ''}:{dimensions}"))


def _derive_backend(values: Tree, reader: ValueReader, origins: Origins) -> list[str]:
    rollout = values.get("rollout")
    section: Tree = dict(rollout) if isinstance(rollout, dict) else {}
    if section.get("backend") not in (None, ""):
        return []
    section.pop("backend", None)
    values["rollout"] = section
    try:
        derived = backend_of_allocation(str(reader.lookup(_ALLOCATION) or ""))
    except ConfigError as exc:
        return [f"allocation_mode ({origins.of(_ALLOCATION).detail}): {exc}; or set rollout.backend"]
    if derived is not None:
        section["backend"] = derived
        origins.derived[_BACKEND] = _ALLOCATION
    return []


def _derive_reward(values: Tree, reader: ValueReader, origins: Origins) -> list[str]:
    given = {path: reader.lookup(path) for path in _REWARD_SOURCES}
    path = next((path for path, value in given.items() if value not in (None, "")), None)
    if path is None:
        return []
    if "reward_fn" not in values:
        values["reward_fn"] = given[path]
        origins.derived[_REWARD] = path
    elif path == _REWARD_SOURCES[0] and values["reward_fn"] != given[path]:
        return [_disagree(path, given[path], _REWARD, values["reward_fn"], origins)]
    return []


def _derive_dtype(values: Tree, reader: ValueReader, origins: Origins) -> list[str]:
    """The engine's section says in what dtype training samples: take it over where the model's own does not."""
    engine = engine_of(values)
    dtype = reader.lookup((engine, "dtype")) if engine in ENGINE_SECTIONS else None
    if dtype in (None, "", "auto"):
        return []
    actor = values.get("actor")
    section: Tree = dict(actor) if isinstance(actor, dict) else {}
    wanted = _DTYPE_NAMES.get(str(dtype), str(dtype))
    if section.get("dtype") is None:
        values["actor"] = {**section, "dtype": wanted}
        origins.derived[_DTYPE] = (engine, "dtype")
    elif section["dtype"] != wanted:
        return [_disagree((engine, "dtype"), wanted, _DTYPE, section["dtype"], origins)]
    return []


def _derive_thinking(values: Tree, reader: ValueReader, origins: Origins) -> list[str]:
    """AReaL's workflows take enable_thinking and hand it to the chat template."""
    path = next((path for path in _THINKING if reader.lookup(path) is not None), None)
    if path is None:
        return []
    value = reader.lookup(path)
    if not isinstance(value, bool):
        return [f"{'.'.join(path)} = {show_value(value)} ({origins.of(path)}): allowed: true or false"]
    chat = values.get("chat")
    section: Tree = dict(chat) if isinstance(chat, dict) else {}
    given = section.get("template_kwargs")
    kwargs: Tree = dict(given) if isinstance(given, dict) else {}
    own = (*_TEMPLATE_KWARGS, THINKING)
    if THINKING not in kwargs:
        values["chat"] = {**section, "template_kwargs": {**kwargs, THINKING: value}}
        origins.derived[own] = origins.derived[_TEMPLATE_KWARGS] = path
    elif kwargs[THINKING] != value:
        return [_disagree(path, value, own, kwargs[THINKING], origins)]
    return []


def engine_of(values: Tree) -> str:
    """Return the engine's name of rollout.backend as it is written, before it is checked."""
    rollout = values.get("rollout")
    backend = rollout.get("backend") if isinstance(rollout, dict) else None
    return re.split(r"[:\[.]", str(backend or "vllm"), maxsplit=1)[0]


def _disagree(path: KeyPath, value: object, other: KeyPath, other_value: object, origins: Origins) -> str:
    here, there = ".".join(path), ".".join(other)
    return (
        f"{here} = {show_value(value)} ({origins.of(path)}) and {there} = {show_value(other_value)} "
        f"({origins.of(other)}) disagree: both decide the same; add {here}=null, or make them equal"
    )
