"""Picks from a configuration tree the values that evaluation reads: interpolates them, ignores what only training
reads, and finds misspelt keys."""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from schemas.config.deciding_keys import DECIDING_KEYS, DERIVED_KEYS, ENGINE_SECTIONS, changes_nothing, neutral_values
from schemas.config.keys import KeySpec, child_names, find_spec, key_specs, nearest, takes_text
from schemas.config.origins import Origins, show_value
from schemas.config.source import KeyPath, Tree, Value
from schemas.config.training_keys import OPEN_SECTIONS, SILENT_ENGINE_KEYS, TRAINING_KEYS, TRAINING_SECTIONS
from schemas.secrets import ENVIRONMENT_RULE, may_read_variable

MISSING: Final = "???"
"""How OmegaConf's files mark a value that is still to be filled in."""

_MISPLACED_FROM: Final = ("gconfig", "valid_dataset", "grading", "vllm", "sglang")
"""Sections whose keys, standing at top level, were meant for them: they decide what is generated or scored."""
_VARIABLE: Final = re.compile(r"oc\.env\s*:\s*([^,}]*)")
"""The name in `${oc.env:NAME}` and `${oc.env:NAME,default}`; one that is itself interpolated is no allowed name."""
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
"""The key in `${a.b}`."""
_RECURSIVE: Final = "cannot be interpolated: it is recursive, as it leads back to itself; write the value itself"
_ABSENT: Final = object()


class ValueReader:
    """Reads one merged configuration tree; call `read` once, then look at the other attributes."""

    def __init__(self, tree: Tree, written: Tree, origins: Origins) -> None:
        """`written`: the tree with every scalar as the text that stands in the file."""
        self._tree = tree
        self._written = written
        self._origins = origins
        self._interpolator = _Interpolator(tree)
        self._text_interpolator = _Interpolator(written)
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
        if reason == _RECURSIVE or not self._is_reported(written, path):
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


class _Interpolator:
    """OmegaConf over a tree with our defaults beneath; imported when the first `${…}` is met, for that takes 0.4 s."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._root: Any = None
        self._forbidden: list[str] = []

    def resolve(self, path: KeyPath, written: str) -> tuple[object, str]:
        """Return (value, "") of the key at `path`, or (None, why it cannot be interpolated); `written` is its text."""
        from omegaconf import OmegaConf
        from omegaconf.errors import InterpolationKeyError, InterpolationToMissingValueError, OmegaConfBaseException

        if name := _forbidden_variable(written):
            return None, _forbidden(name)
        refused: list[str] = []
        try:
            if self._root is None:
                self._root = OmegaConf.create(cast("dict[str, Any]", self._readable(_over_defaults(self._tree))))
            _check_grammar(written)
            node: Any = self._root
            with _environment_guarded(refused):
                for key in path:
                    node = node[key]
                return (OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node), ""
        except InterpolationKeyError as exc:
            return None, _missing_key(str(exc), self._tree)
        except (OmegaConfBaseException, RecursionError) as exc:
            if refused:
                return None, _forbidden(refused[0])
            if isinstance(exc, InterpolationToMissingValueError) and self._forbidden:
                return None, _forbidden(self._forbidden[0])
            if "Recursive" in str(exc) or not str(exc):
                return None, _RECURSIVE
            lines = str(exc).splitlines()
            return None, f"cannot be interpolated: {lines[0]}; mend the ${{…}}, or write the value itself"

    def _readable(self, value: Value) -> Value:
        """`value` without texts that OmegaConf cannot parse or that ask for a variable which may not be read: one such
        text in a section that nobody reads must not refuse the file; where one is read, its own error is reported."""
        if isinstance(value, dict):
            return {key: self._readable(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._readable(item) for item in value]
        if not isinstance(value, str) or "${" not in value:
            return value
        if name := _forbidden_variable(value):
            self._forbidden.append(name)
            return MISSING
        return value if _is_well_formed(value) else MISSING


@contextmanager
def _environment_guarded(refused: list[str]) -> Generator[None]:
    """Keep OmegaConf from variables that may not be read, however `oc.env` is spelt (`${oc.${kind}:HF_TOKEN}`).

    The first of `refused` is the name of such a variable.
    """
    from omegaconf import OmegaConf
    from omegaconf.resolvers import oc

    def read(name: str, *default: object) -> str | None:
        if not may_read_variable(name):
            refused.append(name)
            raise ValueError(name)
        return oc.env(name, *default)

    OmegaConf.register_resolver("oc.env", read, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_resolver("oc.env", oc.env, replace=True)


def _check_grammar(text: str) -> None:
    """Raise OmegaConf's GrammarParseError when the `${…}` in `text` do not parse."""
    from omegaconf import OmegaConf

    OmegaConf.create({"text": text})


def _is_well_formed(text: str) -> bool:
    from omegaconf.errors import GrammarParseError

    try:
        _check_grammar(text)
    except GrammarParseError:
        return False
    return True


def _forbidden_variable(text: str) -> str:
    """Return the first variable whose value `text` asks for and that a configuration may not hold; empty if none."""
    names = (name.strip(" '\"") for name in _VARIABLE.findall(text))
    return next((name for name in names if not may_read_variable(name)), "")


def _forbidden(name: str) -> str:
    return (
        f"${{oc.env:{name}}} would put the value of {name} into what is printed and stored; allowed: "
        f"{ENVIRONMENT_RULE}; write the value itself if it is no secret, or give the worker its environment"
    )


def _missing_key(message: str, tree: Tree) -> str:
    name = message.partition("'")[2].partition("'")[0]
    near = nearest(name, _dotted_names(tree, ""), cutoff=0.6)
    hint = f"; did you mean ${{{near}}}?" if near else "; write the value itself"
    return f"cannot be interpolated: there is no key {name!r}{hint}"


def _dotted_names(tree: Mapping[str, Value], prefix: str) -> list[str]:
    names: list[str] = []
    for key, value in tree.items():
        names.append(f"{prefix}{key}")
        if isinstance(value, dict):
            names.extend(_dotted_names(value, f"{prefix}{key}."))
    return names


def _over_defaults(tree: Tree, path: KeyPath = ()) -> Tree:
    """The tree with the defaults of absent keys, so that `${gconfig.temperature}` holds in a file without it."""
    filled = dict(tree)
    for spec in (key_specs()[(*path, name)] for name in child_names(path)):
        name, present = spec.path[-1], tree.get(spec.path[-1])
        if spec.model is not None:
            if isinstance(present, dict):
                filled[name] = _over_defaults(present, spec.path)
            elif present is None and not spec.nullable:
                filled[name] = _over_defaults({}, spec.path)
        elif name not in tree and not spec.required:
            default = spec.default
            filled[name] = cast("Value", list(default) if isinstance(default, tuple) else default)
    return filled
