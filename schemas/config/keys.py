"""The keys of `EvaluationConfig` as data: what exists, what each takes and means, which one a misspelling meant."""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas.evaluation import EvaluationConfig

KeyPath = tuple[str, ...]
"""The keys from the root to a value; positions inside a list are spelt as numbers."""
Tree = dict[str, "Value"]
Value = None | bool | int | float | str | bytes | list["Value"] | Tree
"""What a configuration file can hold."""

LIKENESS: Final = 0.75
"""Ratio of common letters (difflib) from which an unknown key counts as a misspelling of a known one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpec:
    """What the configuration model says of one key."""

    path: KeyPath
    """Dotted path of the key, as a tuple."""
    model: type[BaseModel] | None
    """The section's model when the key is a section, else None."""
    type_name: str
    """What it takes, in words."""
    kinds: frozenset[object]
    """The plain types it takes; those of its elements where it takes a list."""
    is_mapping: bool
    """Whether it takes values by names of the user's own."""
    nullable: bool
    """Whether null is a value of its own."""
    required: bool
    """Whether it has no default."""
    default: object
    """The default; None for sections and required keys."""
    allowed: str
    """Allowed range or values in words; empty when any value of the type will do."""
    meaning: str
    """The field's docstring on one line."""

    @property
    def dotted(self) -> str:
        """The path as a user writes it."""
        return ".".join(self.path)

    @property
    def takes_text(self) -> bool:
        """Whether a value is text, however much it looks like a number."""
        return str in self.kinds and not self.kinds & {int, float, bool}


@cache
def key_specs() -> dict[KeyPath, KeySpec]:
    """Return every key of the configuration, sections before their keys, in the order of the models."""
    return {spec.path: spec for spec in _walk(EvaluationConfig, ())}


def find_spec(path: KeyPath) -> KeySpec | None:
    """Return what is known of the key at `path`; positions inside a list count as the list; None for unknown keys."""
    while path and path[-1].isdigit():
        path = path[:-1]
    return key_specs().get(path)


def takes_text(path: KeyPath) -> bool:
    """Whether the key at `path` takes text."""
    spec = find_spec(path)
    if spec is None:  # a name in a mapping of texts, such as a variable in scheduler.slurm.env
        spec = find_spec(path[:-1])
        return spec is not None and spec.is_mapping and spec.takes_text
    return spec.model is None and spec.takes_text


def child_names(path: KeyPath) -> tuple[str, ...]:
    """Return the names of the keys directly under the section at `path`."""
    return tuple(key[-1] for key in key_specs() if key[:-1] == path)


def nearest(name: str, names: Iterable[str], *, cutoff: float = LIKENESS) -> str | None:
    """Return the one of `names` most like `name`, or None when none is as like as `cutoff` in [0, 1]."""
    near = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=cutoff)
    return near[0] if near else None


def _walk(model: type[BaseModel], prefix: KeyPath) -> Iterator[KeySpec]:
    for name, field in model.model_fields.items():
        spec = _spec((*prefix, name), field)
        yield spec
        if spec.model is not None:
            yield from _walk(spec.model, spec.path)


def _spec(path: KeyPath, field: FieldInfo) -> KeySpec:
    kinds = frozenset(_plain_kinds(field.annotation))
    models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    default = None if field.is_required() or models else field.get_default(call_default_factory=True, validated_data={})
    return KeySpec(
        path=path,
        model=models[0] if models else None,
        type_name=_type_name(field.annotation),
        kinds=kinds - {NoneType},
        is_mapping=get_origin(field.annotation) is dict,
        nullable=NoneType in kinds,
        required=field.is_required(),
        default=default,
        allowed=_allowed(field),
        meaning=" ".join((field.description or "").split()),
    )


def _plain_kinds(annotation: object) -> Iterator[object]:
    origin = get_origin(annotation)
    if origin is Literal:
        yield from {type(value) for value in get_args(annotation)}
    elif origin is Annotated:
        yield from _plain_kinds(get_args(annotation)[0])
    elif origin is None:
        yield annotation
    else:
        for argument in get_args(annotation):
            if argument is not Ellipsis:
                yield from _plain_kinds(argument)


_TYPE_NAMES: Final[dict[object, str]] = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def _type_name(annotation: object) -> str:
    origin = get_origin(annotation)
    arguments = [argument for argument in get_args(annotation) if argument is not Ellipsis]
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin is Literal:
        return "text"
    if origin in (Union, UnionType):
        names = [_type_name(argument) for argument in arguments if argument is not NoneType]
        return " or ".join([*names, *(["null"] if NoneType in arguments else [])])
    if origin is tuple:
        return f"list of {_type_name(arguments[0])}"
    if origin is dict:
        return f"{_type_name(arguments[1])} by name"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return _TYPE_NAMES.get(annotation, str(annotation))


def _allowed(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "allowed" in extra:
        return str(extra["allowed"])
    literals = list(_literals(field.annotation))
    if literals:
        return ", ".join(str(value) for value in literals)
    bounds = [_bound(constraint) for constraint in _constraints(field)]
    return ", ".join(bound for bound in bounds if bound)


def _literals(annotation: object) -> Iterator[object]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for argument in get_args(annotation):
            yield from _literals(argument)


def _constraints(field: FieldInfo) -> list[Any]:
    """The constraints of the field, or of its elements where it is a list."""
    return list(field.metadata) or list(_element_constraints(field.annotation))


def _element_constraints(annotation: object) -> Iterator[Any]:
    for argument in get_args(annotation):
        if get_origin(argument) is Annotated:
            for extra in get_args(argument)[1:]:
                yield from extra.metadata if isinstance(extra, FieldInfo) else [extra]
        else:
            yield from _element_constraints(argument)


def _bound(constraint: object) -> str:
    match constraint:
        case annotated_types.Ge(ge=low):
            return f"≥ {low}"
        case annotated_types.Gt(gt=low):
            return f"> {low}"
        case annotated_types.Le(le=high):
            return f"≤ {high}"
        case annotated_types.Lt(lt=high):
            return f"< {high}"
        case annotated_types.MinLen(min_length=1):
            return "not empty"
        case _:
            return ""
