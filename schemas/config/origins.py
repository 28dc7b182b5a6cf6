"""Where the value of a key came from, and how a value is shown to a user."""

import json
from dataclasses import dataclass
from typing import Literal

from schemas.config.source import KeyPath, Override, Source, Value

OriginKind = Literal["default", "file", "override", "derived"]

_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the value of one key came from."""

    kind: OriginKind
    """`derived` comes from another key of the file, such as AReaL's older allocation_mode."""
    detail: str = ""
    """`FILE:LINE`, or the override as typed."""
    interpolation: str = ""
    """The text with `${…}` that the value was interpolated from; empty when it was written as it is."""

    def __str__(self) -> str:
        place = self.kind if self.kind in ("default", "override") else ""
        text = " ".join(part for part in (place, self.detail) if part)
        return f"{text}, interpolated from {self.interpolation}" if self.interpolation else text


class Origins:
    """Tells the origin of any key of a file with overrides."""

    def __init__(self, source: Source, overrides: tuple[Override, ...]) -> None:
        self._source = source
        self._overrides = overrides
        self.interpolations: dict[KeyPath, str] = {}
        """The text with `${…}` of each interpolated key; filled by whoever interpolates."""
        self.derived: dict[KeyPath, KeyPath] = {}
        """Keys that took their value from an older key of another name; filled by whoever reads it."""

    def of(self, path: KeyPath) -> Origin:
        """Return the origin of the key at `path`."""
        override = self.override(path)
        if path in self.derived and override is None:
            origin = self.of(self.derived[path])
            return Origin(kind="derived", detail=f"from {'.'.join(self.derived[path])}, {origin.detail}")
        interpolation = next((self.interpolations[p] for p in _prefixes(path) if p in self.interpolations), "")
        if override is not None:
            return Origin(kind="override", detail=override.text, interpolation=interpolation)
        if path in self._source.lines or interpolation:
            line = next((self._source.lines[p] for p in _prefixes(path) if p in self._source.lines), None)
            detail = self._source.name if line is None else f"{self._source.name}:{line}"
            return Origin(kind="file", detail=detail, interpolation=interpolation)
        return Origin(kind="default")

    def is_only_typed(self, path: KeyPath) -> bool:
        """Return whether an override makes the key exist: the file does not have it."""
        return path not in self._source.lines and self.override(path) is not None

    def override(self, path: KeyPath) -> Override | None:
        """Return the last override that sets the key at `path`, a section around it, or what makes it exist at all."""
        for override in reversed(self._overrides):
            if override.path == path or (path[: len(override.path)] == override.path and _holds(override, path)):
                return override
        if path in self._source.lines:
            return None
        return next((override for override in reversed(self._overrides) if override.path[: len(path)] == path), None)


def _prefixes(path: KeyPath) -> list[KeyPath]:
    return [path[:end] for end in range(len(path), 0, -1)]


def _holds(override: Override, path: KeyPath) -> bool:
    value: Value = override.value
    for key in path[len(override.path) :]:
        if not isinstance(value, dict):
            return not isinstance(value, list) or key.isdigit()
        if key not in value:
            return False
        value = value[key]
    return True


def show_value(value: object) -> str:
    """Return `value` on one line as JSON, shortened to what fits an error message."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."
