"""The resolved configuration as text: YAML that loads again, a digest, and YAML with the origin of each value."""

import hashlib
import json
import re
from typing import Any, Final

import yaml

from schemas.base import omit_added_defaults
from schemas.config.keys import KeyPath
from schemas.config.loading import LoadedConfig
from schemas.config.source import ConfigYamlDumper
from schemas.evaluation import EvaluationConfig
from schemas.sampling import GenerationConfig

_UNLIMITED_WIDTH: Final = 2**31
_INTERPOLATION: Final = re.compile(r"(\\*)\$\{")
_COMMENT_COLUMN: Final = 44


def config_to_yaml(config: EvaluationConfig) -> str:
    """Return every key of `config` as YAML in the order of the models; `load_config` reads it back as an equal one."""
    tree: Any = _escaped(config.model_dump(mode="json"))
    return yaml.dump(tree, Dumper=ConfigYamlDumper, sort_keys=False, allow_unicode=True, width=_UNLIMITED_WIDTH)


def config_digest(config: EvaluationConfig) -> str:
    """Return the 128-bit hex digest of all values of `config`, by BLAKE2b over canonical JSON.

    Keys that earlier versions did not have are left out where they have their defaults: a digest stays over versions.
    """
    text = json.dumps(
        omit_added_defaults(config, config.model_dump(mode="json")),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
    )
    return hashlib.blake2b(text.encode("ascii"), digest_size=16, person=b"milepost-config").hexdigest()


def render_config(loaded: LoadedConfig) -> str:
    """Return the configuration as YAML with the origin of each value as a comment; it loads again.

    Ends with what evaluation draws with, where `eval_gconfig` or greedy change `gconfig`, and with what was ignored.
    """
    tree: Any = _escaped(loaded.config.model_dump(mode="json"))
    lines: list[str] = []
    open_section: KeyPath = ()
    for path, origin in loaded.origins.items():
        section = path[:-1]
        lines.extend(
            f"{'  ' * depth}{name}:"
            for depth, name in enumerate(section)
            if section[: depth + 1] != open_section[: depth + 1]
        )
        open_section = section
        value: Any = tree
        for key in path:
            value = value[key]
        assignment = f"{'  ' * len(section)}{path[-1]}: {_inline(value)}"
        lines.append(f"{assignment.ljust(_COMMENT_COLUMN)}  # {_one_line(str(origin))}")
    return "\n".join([*lines, *_notes(loaded)]) + "\n"


def describe_sampling(loaded: LoadedConfig) -> str:
    """Return on one line how completions are drawn and which section says so.

    Names what differs from AReaL's reading: there a partial `eval_gconfig` is filled up with AReaL's defaults instead
    of `gconfig`, and `max_new_tokens` is 16384 where nothing sets it.
    """
    drawn = loaded.config.generation.model_dump(mode="json")
    default = GenerationConfig().model_dump(mode="json")
    overrides = {} if loaded.config.eval_gconfig is None else loaded.config.eval_gconfig.model_dump(mode="json")
    base = loaded.config.gconfig.model_dump(mode="json")
    parts: list[str] = []
    for key, value in drawn.items():
        is_override, is_set = overrides.get(key) is not None, loaded.origins["gconfig", key].kind != "default"
        section = "eval_gconfig" if is_override else "gconfig" if is_set else "default"
        if value != (overrides[key] if is_override else base[key]):
            section = "greedy"  # which makes one completion, at temperature 0
        if value != default[key] or key in ("n_samples", "temperature", "max_new_tokens"):
            parts.append(f"{key} {_inline(value)} ({section})")
    return _one_line(f"sampling: {', '.join(parts)}")


def _notes(loaded: LoadedConfig) -> list[str]:
    config = loaded.config
    notes: list[str] = []
    if config.generation != config.gconfig:
        drawn = ", ".join(f"{key} {_inline(value)}" for key, value in config.generation.model_dump(mode="json").items())
        notes.append(f"# evaluation draws with: {_one_line(drawn)}")
    if loaded.notice is not None:
        notes.append(f"# {_one_line(loaded.notice)}")
    return notes


def _inline(value: Any) -> str:
    """YAML of a scalar or list on one line, without the end-of-document mark that a bare scalar gets."""
    text = yaml.dump(
        value,
        Dumper=ConfigYamlDumper,
        default_flow_style=True,
        allow_unicode=True,
        width=_UNLIMITED_WIDTH,
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _escaped(value: Any) -> Any:
    """Keep `${` in a value from being taken for an interpolation when the text is loaded again."""
    if isinstance(value, str):
        return _INTERPOLATION.sub(lambda match: f"{match[1] * 2}\\${{", value)
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value
