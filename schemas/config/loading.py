"""From a YAML file and overrides to a validated configuration that knows where each value came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from schemas.config.derivation import derive_values, engine_of, limit_to_max_tokens
from schemas.config.keys import KeyPath, key_specs
from schemas.config.merging import merge
from schemas.config.origins import Origin, Origins
from schemas.config.problems import describe_problems, raise_problems
from schemas.config.scheduling import derive_slurm
from schemas.config.source import Override, parse_override, read_source
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
    source, (parsed, problems) = read_source(Path(path)), _parse(overrides)
    merged = merge(source, parsed)
    problems.extend(merged.problems)
    origins = Origins(source, merged)
    reader = ValueReader(merged, origins)
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


def _parse(overrides: Sequence[str]) -> tuple[list[Override], list[str]]:
    """Return the overrides, and what is wrong with those that cannot be read."""
    parsed: list[Override] = []
    problems: list[str] = []
    for text in overrides:
        try:
            parsed.append(parse_override(text))
        except ConfigError as exc:
            problems.append(str(exc))
    return parsed, problems


def _leaves(config: EvaluationConfig) -> list[KeyPath]:
    """Every key that holds a value, and every section that is null, in the order of the models."""
    leaves: list[KeyPath] = []
    sections: dict[KeyPath, object] = {(): config}
    for path, spec in key_specs().items():
        parent = sections.get(path[:-1])
        value = None if parent is None else getattr(parent, path[-1])
        if spec.model is not None:
            sections[path] = value
        if parent is not None and (spec.model is None or value is None):
            leaves.append(path)
    return leaves
