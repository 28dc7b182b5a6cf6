"""Interpolation by OmegaConf: `${a.b}` and `${oc.env:NAME}` over a tree with the defaults of our keys beneath."""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from schemas.config.keys import KeyPath, Tree, Value, child_names, key_specs, nearest
from schemas.secrets import ENVIRONMENT_RULE, may_read_variable

MISSING: Final = "???"
"""How OmegaConf's files mark a value that is still to be filled in."""
RECURSIVE: Final = "cannot be interpolated: it is recursive, as it leads back to itself; write the value itself"
"""The reason given for a key that refers to itself, by way of others too."""

_VARIABLE: Final = re.compile(r"oc\.env\s*:\s*([^,}]*)")
"""The name in `${oc.env:NAME}` and `${oc.env:NAME,default}`; one that is itself interpolated is no allowed name."""


class Interpolator:
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
                return None, RECURSIVE
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
            if isinstance(present, dict) or (present is None and not spec.nullable):
                filled[name] = _over_defaults(present or {}, spec.path)
        elif name not in tree and not spec.required:
            filled[name] = cast("Value", list(spec.default) if isinstance(spec.default, tuple) else spec.default)
    return filled
