"""Picks from a configuration tree the values that evaluation reads: interpolates them, ignores what only training
reads, and finds misspelt keys."""

import re
from typing import Final, cast

from schemas.config.deciding_keys import DECIDING_KEYS, DERIVED_KEYS, ENGINE_SECTIONS, changes_nothing, neutral_values
from schemas.config.interpolation import MISSING, RECURSIVE, Interpolator
from schemas.config.keys import KeyPath, KeySpec, Tree, Value, child_names, find_spec, key_specs, nearest, takes_text
from schemas.config.merging import MergedTree
from schemas.config.origins import Origins, show_value
from schemas.config.training_keys import OPEN_SECTIONS, SILENT_ENGINE_KEYS, TRAINING_KEYS, TRAINING_SECTIONS

_MISPLACED_FROM: Final = ("gconfig", "valid_dataset", "grading", "vllm", "sglang")
"""Sections whose keys, standing at top level, were meant for them: they decide what is generated or scored."""
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
"""The key in `${a.b}`."""
_ABSENT: Final = object()


class ValueReader:
    """Reads one merged configuration tree; call `read` once, then look at the other attributes."""

    def __init__(self, merged: MergedTree, origins: Origins) -> None:
        """`origins` learns which keys are interpolated."""
        self._tree = merged.tree
        self._written = merged.written
        self._origins = origins
        self._interpolator = Interpolator(merged.tree)
        self._text_interpolator = Interpolator(merged.written)
        self.problems: list[str] = []
        self.failed: set[KeyPath] = set()
        """Keys whose value cannot be had; `problems` says why."""
        self.ignored_sections: list[str] = []
        self.unknown_keys: list[str] = []
        self.engine_keys: list[str] = []
        self._deciding: list[tuple[KeyPath, Value]] = []

    def read(self) -> Tree:
        """Return the values of the keys that evaluation reads, nested as in the file."""
        return self._section(self._tree, ())

    def lookup(self, path: KeyPath, *, as_written: bool = False) -> Value:
        """Return the interpolated value of any key of the tree, read or not; None when it is absent.

        `as_written`: with each scalar as the text that stands in the file.
        """
        value: Value = self._written if as_written else self._tree
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        resolved = self._resolve(value, path, as_written=as_written)
        return None if resolved is _ABSENT else cast("Value", resolved)

    def _section(self, tree: Tree, path: KeyPath) -> Tree:
        values: Tree = {}
        for name, raw in tree.items():
            here = (*path, name)
            spec = find_spec(here)
            if spec is None:
                self._unread(here, raw)
                continue
            value = self._subsection(spec, raw, here) if spec.model is not None else self._leaf(spec, raw, here)
            if value is not _ABSENT:
                values[name] = cast("Value", value)
        return values

    def _subsection(self, spec: KeySpec, raw: Value, path: KeyPath) -> object:
        if isinstance(raw, str) and "${" in raw:
            self._origins.interpolations[path] = raw
            resolved = self._resolve(raw, path)
            if resolved is _ABSENT:
                return _ABSENT
            raw = cast("Value", resolved)
        if isinstance(raw, dict):
            return self._section(raw, path)
        if raw is None:
            return None if spec.nullable else _ABSENT  # an empty section is a section of defaults
        self.problems.append(f"{self._at(path, raw)}: expected a section with {', '.join(child_names(path))}")
        return _ABSENT

    def _leaf(self, spec: KeySpec, raw: Value, path: KeyPath) -> object:
        if raw == MISSING:
            self.failed.add(path)
            self.problems.append(f"{self._at(path, raw)}: still to be filled in; set {spec.dotted}=VALUE")
            return _ABSENT
        value = self._resolve(raw, path)
        if value is _ABSENT:
            return _ABSENT
        if isinstance(value, bool):
            return str(value).lower() if spec.takes_text else value
        return _as_text(value) if spec.takes_text else value

    def _resolve(self, raw: Value, path: KeyPath, *, as_written: bool = False) -> object:
        """The value with its `${…}` replaced, or `_ABSENT` after noting why that cannot be done."""
        written = _interpolated_text(raw)
        if not written:
            return raw
        self._origins.interpolations[path] = written
        interpolator = self._text_interpolator if as_written or takes_text(path) else self._interpolator
        value, reason = interpolator.resolve(path, written)
        if not reason:
            return value
        self.failed.add(path)
        if reason == RECURSIVE or not self._is_reported(written, path):
            self.problems.append(f"{self._at(path, raw)}: {reason}")
        return _ABSENT

    def _is_reported(self, written: str, path: KeyPath) -> bool:
        """Whether `${…}` in the text at `path` leads to a key of ours that is missing or cannot be had either: that key
        is to blame."""
        for name in _REFERENCE.findall(written):
            target = tuple(name.split("."))
            raw: Value = self._tree
            for key in target:
                raw = raw.get(key) if isinstance(raw, dict) else None
            spec, text = find_spec(target), _interpolated_text(raw)
            is_open = raw == MISSING or bool(text and self._interpolator.resolve(target, text)[1])
            if target == path or not (is_open or raw is None):
                continue
            if spec is not None and (is_open or spec.required):
                return True
            if text and self._is_reported(text, target):
                return True
        return False

    def _unread(self, path: KeyPath, raw: Value) -> None:
        """Note a key that is no key of ours: ignored, unknown, deciding, or a problem."""
        name, section, dotted = path[-1], path[:-1], ".".join(path)
        if dotted in DERIVED_KEYS:
            return
        if section and name in TRAINING_KEYS.get(".".join(section), ()):
            if section[0] in ENGINE_SECTIONS and name not in SILENT_ENGINE_KEYS and raw not in (None, ""):
                self.engine_keys.append(dotted)
            return
        if not section and name in TRAINING_SECTIONS:
            self.ignored_sections.append(name)
        elif dotted in DECIDING_KEYS or (self._may_be_foreign(path) and neutral_values(dotted) is not None):
            self._deciding.append((path, raw))
        elif self._may_be_foreign(path):
            self.unknown_keys.append(dotted)
        else:
            self.problems.append(self._unknown(path))

    def _may_be_foreign(self, path: KeyPath) -> bool:
        """Tell whether a key unknown to us may be a trainer's of another version, and not a slip of the user's."""
        name, section = path[-1], path[:-1]
        is_open = not section or (len(section) == 1 and section[0] in OPEN_SECTIONS)
        if not is_open or self._origins.is_only_typed(path) or nearest(name, child_names(section)):
            return False
        return bool(section) or not any(name in child_names((other,)) for other in _MISPLACED_FROM)

    def deciding_problems(self, engine: str) -> list[str]:
        """Return what is wrong with keys that decide what is generated or scored and cannot be honoured.

        The section of an engine counts where `engine`, the backend's, is that one.
        """
        problems: list[str] = []
        for path, raw in self._deciding:
            if path[0] in ENGINE_SECTIONS and path[0] != engine:
                continue
            value, dotted = self._resolve(raw, path), ".".join(path)
            neutral = neutral_values(dotted) or (None,)
            if value is not _ABSENT and not changes_nothing(dotted, value, neutral):
                shown = show_value(neutral[0])
                problems.append(
                    f"{self._at(path, value)}: it decides what is generated or scored, and this version cannot do it; "
                    f"allowed: {shown}; remove it, or add {dotted}={shown}"
                )
        return problems

    def _unknown(self, path: KeyPath) -> str:
        origin = self._origins.of(path)
        meant = nearest_key(path)
        hint = f"; did you mean {meant}?" if meant else ""
        names = ", ".join(child_names(path[:-1]))
        section = ".".join(path[:-1]) or "the configuration"
        allowed = f"; keys of {section}: {names}" if names and (len(path) > 1 or not meant) else ""
        return f"{'.'.join(path)} ({origin}): there is no such key{hint}{allowed}"

    def _at(self, path: KeyPath, value: object) -> str:
        origin = self._origins.of(path)
        place = f"{origin.kind} {origin.detail}" if origin.kind == "override" else origin.detail
        return f"{'.'.join(path)} = {show_value(value)} ({place})"


def nearest_key(path: KeyPath) -> str | None:
    """Return the dotted key that `path` most likely meant: like it in the same section, of its name elsewhere, or alike
    as a whole; None when nothing is near."""
    siblings = (*child_names(path[:-1]), *TRAINING_KEYS.get(".".join(path[:-1]), ()))
    sibling = nearest(path[-1], siblings, cutoff=0.6)
    if sibling:
        return ".".join((*path[:-1], sibling))
    namesake = next((spec.dotted for spec in key_specs().values() if spec.path[-1] == path[-1]), None)
    return namesake or nearest(".".join(path), [spec.dotted for spec in key_specs().values()], cutoff=0.6)


def _as_text(value: object) -> object:
    """Text for the numbers in `value`: `trial_name: ${seed}` where the file has no seed takes the default."""
    if isinstance(value, dict):
        return {name: _as_text(item) for name, item in cast("dict[str, object]", value).items()}
    return str(value) if isinstance(value, int | float) else value


def _interpolated_text(raw: Value) -> str:
    if isinstance(raw, str):
        return raw if "${" in raw else ""
    if isinstance(raw, list):
        return next((text for text in map(_interpolated_text, raw) if text), "")
    if isinstance(raw, dict):
        return next((text for text in map(_interpolated_text, raw.values()) if text), "")
    return ""
