"""From a YAML file and overrides to a validated configuration that knows where each value came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from schemas.config.derivation import derive_values, engine_of, limit_to_max_tokens, with_older_model
from schemas.config.keys import key_specs, takes_text
from schemas.config.origins import Origin, Origins
from schemas.config.problems import describe_problems, raise_problems
from schemas.config.scheduling import derive_slurm
from schemas.config.source import IsText, KeyPath, Override, Source, Tree, Value, parse_override, read_source
from schemas.config.values import ValueReader
from schemas.errors import ConfigError
from schemas.evaluation import EvaluationConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration with the story of its making."""

    config: EvaluationConfig
    """The validated configuration."""
    origins: dict[KeyPath, Origin]
    """Origin of the value of each key, in the order of the models; sections that are null count as keys."""
    ignored_sections: tuple[str, ...]
    """Top-level keys of the file that only training reads, in its order."""
    unknown_keys: tuple[str, ...]
    """Keys of the file that neither evaluation nor a training config known to us reads, in its order."""
    unused_keys: tuple[str, ...] = ()
    """Keys of the engine's section and of a `scheduling_spec` that could shape a run and that evaluation has no place
    for, in its order."""

    @property
    def notice(self) -> str | None:
        """One line that names what was ignored; None when nothing was."""
        parts = [
            f"{label}: {', '.join(names)}"
            for label, names in (
                ("ignored, read by training only", self.ignored_sections),
                ("ignored, unknown", self.unknown_keys),
                ("not passed on", self.unused_keys),
            )
            if names
        ]
        return "; ".join(parts) or None


def load_with_origins(path: str | Path, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Return the configuration in the YAML file at `path` with `key.path=value` overrides, later ones winning.

    Raises:
        ConfigError: everything that is wrong with file, overrides and values, shown together.
    """
    source, parsed, problems = _read(Path(path), overrides, takes_text)
    tree, derived, more = _merge(source, parsed)
    written, _, _ = _merge(*_read(Path(path), overrides, _always_text)[:2])
    problems.extend(more)
    origins = Origins(source, parsed)
    origins.derived.update(derived)
    reader = ValueReader(tree, written, origins)
    values = reader.read()
    problems.extend(reader.problems)
    problems.extend(derive_values(values, reader, origins))
    wrong, unused = derive_slurm(values, reader, origins)
    problems.extend(wrong)
    engine = engine_of(values)
    problems.extend(reader.deciding_problems(engine))
    config: EvaluationConfig | None = None
    try:
        config = EvaluationConfig.model_validate(values)
        config, problem = limit_to_max_tokens(config, reader, origins)
        problems.extend(problem)
    except ValidationError as exc:
        problems.extend(describe_problems(exc, origins.of, reader.failed))
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
        unused_keys=(*(key for key in reader.engine_keys if key.startswith(f"{engine}.")), *unused),
    )


def _always_text(_: KeyPath) -> bool:
    return True


def _read(path: Path, overrides: Sequence[str], is_text: IsText) -> tuple[Source, tuple[Override, ...], list[str]]:
    """Return file and overrides as they are written, and what is wrong with the latter."""
    parsed: list[Override] = []
    problems: list[str] = []
    for text in overrides:
        try:
            parsed.append(parse_override(text, is_text))
        except ConfigError as exc:
            problems.append(str(exc))
    return read_source(path, is_text), tuple(parsed), problems


def _merge(source: Source, overrides: Sequence[Override]) -> tuple[Tree, dict[KeyPath, KeyPath], list[str]]:
    """Return the tree with the overrides in it, the keys that stand under an older name, and what is wrong."""
    tree, derived = with_older_model(source.tree)
    problems: list[str] = []
    for override in overrides:
        tree, problem = _apply(tree, override)
        problems.extend(problem)
    return tree, derived, problems


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
