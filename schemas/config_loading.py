"""From a YAML file and overrides to a validated configuration that knows where each value came from."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from schemas.backend import parse_backend
from schemas.config_keys import key_specs, takes_text
from schemas.config_origin import Origin, Origins
from schemas.config_problems import describe_problems, raise_problems
from schemas.config_source import KeyPath, Override, Tree, Value, parse_override, read_source
from schemas.config_values import ValueReader
from schemas.errors import ConfigError
from schemas.evaluation import EvaluationConfig

_BACKEND: Final = ("rollout", "backend")
_ALLOCATION: Final = ("allocation_mode",)
_REWARD: Final = ("reward_fn",)
_REWARD_PATH: Final = ("reward_fn_path",)
_INFERENCE: Final = re.compile(r"(vllm|sglang)(\[[^\]]*\])?[:.]([^+|]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration with the story of its making."""

    config: EvaluationConfig
    """The validated configuration."""
    origins: dict[KeyPath, Origin]
    """Where the value of each key came from, in the order of the models; sections that are null count as keys."""
    ignored_sections: tuple[str, ...]
    """Top-level keys of the file that only training reads, in its order."""
    unknown_keys: tuple[str, ...]
    """Keys of the file that neither evaluation nor a training config known to us reads, in its order."""

    @property
    def notice(self) -> str | None:
        """One line that names what was ignored; None when nothing was."""
        parts = [
            f"{label}: {', '.join(names)}"
            for label, names in (
                ("ignored, read by training only", self.ignored_sections),
                ("ignored, unknown", self.unknown_keys),
            )
            if names
        ]
        return "; ".join(parts) or None


def load_with_origins(path: str | Path, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Return the configuration in the YAML file at `path` with `key.path=value` overrides, later ones winning.

    Raises:
        ConfigError: everything that is wrong with file, overrides and values, shown together.
    """
    source = read_source(Path(path), takes_text)
    parsed, problems = _parse_overrides(overrides)
    tree, derived = _with_older_model(source.tree)
    for override in parsed:
        tree, problem = _apply(tree, override)
        problems.extend(problem)
    origins = Origins(source, parsed)
    origins.derived.update(derived)
    reader = ValueReader(tree, origins)
    values = reader.read()
    problems.extend(reader.problems)
    problems.extend(_derive_from_older_keys(values, reader, origins))
    config: EvaluationConfig | None = None
    try:
        config = EvaluationConfig.model_validate(values)
    except ValidationError as exc:
        problems.extend(describe_problems(exc, origins.of))
    raise_problems(problems, source.name)
    if config is None:
        raise ConfigError(f"{source.name}: refused without a reason; this is a bug of Milepost, please report it")
    return LoadedConfig(
        config=config,
        origins={key: origins.of(key) for key in _leaves(config)},
        ignored_sections=tuple(
            name for name in reader.ignored_sections if all(older[0] != name for older in origins.derived.values())
        ),
        unknown_keys=tuple(reader.unknown_keys),
    )


def _parse_overrides(overrides: Sequence[str]) -> tuple[tuple[Override, ...], list[str]]:
    parsed: list[Override] = []
    problems: list[str] = []
    for text in overrides:
        try:
            parsed.append(parse_override(text, takes_text))
        except ConfigError as exc:
            problems.append(str(exc))
    return tuple(parsed), problems


def _with_older_model(tree: Tree) -> tuple[Tree, dict[KeyPath, KeyPath]]:
    """Older SFT configs call the section of the model `model`: read it as `actor` where there is none."""
    model = tree.get("model")
    if "actor" in tree or not isinstance(model, dict) or "path" not in model:
        return tree, {}
    return {**tree, "actor": model}, {("actor", key): ("model", key) for key in model}


def _apply(tree: Tree, override: Override) -> tuple[Tree, list[str]]:
    """Return a copy of `tree` with the override in it, and what stands against it."""
    root: Value = dict(tree)
    node: Value = root
    for depth, key in enumerate(override.path, start=1):
        if isinstance(node, list) and not (key.isdigit() and int(key) < len(node)):
            return tree, [
                f"override {override.text!r}: {key!r} is not one of the list's {len(node)} entries; set the whole list"
            ]
        if depth == len(override.path):
            break
        child = _child(node, key)
        if child is None:
            child = {}
        if not isinstance(child, dict | list):
            place = ".".join(override.path[:depth])
            return tree, [
                f"override {override.text!r}: {place} is the value {child!r}, not a section; set {place} itself"
            ]
        child = child.copy()
        _put(node, key, child)
        node = child
    key = override.path[-1]
    before = _child(node, key)
    merges = isinstance(before, dict) and isinstance(override.value, dict)
    _put(node, key, _merged(before, override.value) if merges else override.value)
    return root, []


def _child(node: Value, key: str) -> Value:
    if isinstance(node, list):
        return node[int(key)] if key.isdigit() and int(key) < len(node) else None
    return node.get(key) if isinstance(node, dict) else None


def _put(node: Value, key: str, value: Value) -> None:
    if isinstance(node, list) and key.isdigit() and int(key) < len(node):
        node[int(key)] = value
    elif isinstance(node, dict):
        node[key] = value


def _merged(before: Value, after: Value) -> Value:
    if isinstance(before, dict) and isinstance(after, dict):
        return before | {key: _merged(before.get(key), value) for key, value in after.items()}
    return after


def _derive_from_older_keys(values: Tree, reader: ValueReader, origins: Origins) -> list[str]:
    """Fill in what older training configs say under another key; return what is wrong with that."""
    rollout = values.get("rollout")
    backend = rollout.get("backend") if isinstance(rollout, dict) else None
    problems: list[str] = []
    if backend in (None, ""):
        section: Tree = dict(rollout) if isinstance(rollout, dict) else {}
        section.pop("backend", None)
        try:
            derived = backend_of_allocation(str(reader.lookup(_ALLOCATION) or ""))
        except ConfigError as exc:
            problems.append(f"allocation_mode ({origins.of(_ALLOCATION).detail}): {exc}; or set rollout.backend")
            derived = None
        if derived is not None:
            section["backend"] = derived
            origins.derived[_BACKEND] = _ALLOCATION
        values["rollout"] = section
    reward = reader.lookup(_REWARD_PATH)
    if "reward_fn" not in values and reward is not None:
        values["reward_fn"] = reward
        origins.derived[_REWARD] = _REWARD_PATH
    if values.get("tokenizer_path") == "":
        del values["tokenizer_path"]  # how a saved training config says that it is not set
    return problems


def backend_of_allocation(text: str) -> str | None:
    """Return the backend of the inference part of AReaL's older `allocation_mode`; None when it is training alone.

    `sglang.d4p1t1+d4p1t1`, `sglang:d4+fsdp:d4` and `vllm[rollout]:d2t2|fsdp:d4` all hold one.

    Raises:
        ConfigError: there is an inference part that is no backend.
    """
    match = _INFERENCE.match(text.strip()) or re.search(rf"(?<=[+|]){_INFERENCE.pattern}", text.strip())
    if match is None:
        return None
    dimensions = re.sub(r"m(?=[0-9])", "t", match[3].strip())  # the oldest configs write m, model parallel, for t
    return str(parse_backend(f"{match[1]}{match[2] or ''}:{dimensions}"))


def _leaves(config: EvaluationConfig) -> list[KeyPath]:
    """Every key that holds a value, and every section that is null, in the order of the models."""
    leaves: list[KeyPath] = []
    for path, spec in key_specs().items():
        node: object = config
        for key in path:
            node = None if node is None else getattr(node, key)
        parent: object = config
        for key in path[:-1]:
            parent = None if parent is None else getattr(parent, key)
        if parent is not None and (spec.model is None or node is None):
            leaves.append(path)
    return leaves
