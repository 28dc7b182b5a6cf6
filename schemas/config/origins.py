"""Where the value of a key came from, and how a value is shown to a user."""

import json
from dataclasses import dataclass
from typing import Literal

from schemas.config.keys import KeyPath
from schemas.config.merging import MergedTree
from schemas.config.source import Override, Source

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

    def __init__(self, source: Source, merged: MergedTree) -> None:
        self._source = source
        self._places = merged.places
        self.interpolations: dict[KeyPath, str] = {}
        """The text with `${…}` of each interpolated key; filled by whoever interpolates."""
        self.derived: dict[KeyPath, KeyPath] = dict(merged.older)
        """Keys that took their value from a key of another name; filled by whoever reads it."""

    def of(self, path: KeyPath) -> Origin:
        """Return the origin of the key at `path`."""
        prefixes = [path[:end] for end in range(len(path), 0, -1)]
        interpolation = next((self.interpolations[p] for p in prefixes if p in self.interpolations), "")
        place = self._places.get(path)
        if path in self.derived and not isinstance(place, Override):
            origin = self.of(self.derived[path])
            return Origin(kind="derived", detail=f"from {'.'.join(self.derived[path])}, {origin.detail}")
        if place is None:
            around = next((p for p in prefixes if p in self._places), ())
            section = self._places.get(around)
            is_value = isinstance(section, Override) and section.path == around and not isinstance(section.value, dict)
            if interpolation or is_value:  # the section is set as a whole, by `${…}` or null
                place = section
        if isinstance(place, Override):
            return Origin(kind="override", detail=place.text, interpolation=interpolation)
        if place is None and not interpolation:
            return Origin(kind="default")
        detail = self._source.name if place is None else f"{self._source.name}:{place}"
        return Origin(kind="file", detail=detail, interpolation=interpolation)

    def is_only_typed(self, path: KeyPath) -> bool:
        """Return whether an override makes the key exist: the file does not have it."""
        return path not in self._source.lines and isinstance(self._places.get(path), Override)


def show_value(value: object) -> str:
    """Return `value` on one line as JSON, shortened to what fits an error message."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."
