"""The bases of our pydantic models: `Model` for what crosses a room or a disk, `Section` for what a user writes."""

from types import NoneType
from typing import Any, Final, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError


class Model(BaseModel):
    """Frozen, and strict about unknown keys: a misspelt key is an error, not a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=())


class Section(Model):
    """What a user writes, in YAML, as an override, in Prefect's form or in Python: the rules of values hold for all.

    `true` is not a number, although Python would take it for 1. Numbers are finite.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_booleans_for_numbers(cls, value: object, info: ValidationInfo) -> object:
        kinds = _kinds(cls.model_fields[info.field_name or ""].annotation)
        if kinds & {int, float} and bool not in kinds and _holds_boolean(value):
            raise PydanticCustomError("boolean_for_number", "expected a number, got a boolean")
        return value


class AddedLater:
    """Marks a field that earlier versions did not have: at its default it changes no digest of theirs."""


ADDED_LATER: Final = AddedLater()


def omit_added_defaults(model: BaseModel, dumped: dict[str, Any]) -> dict[str, Any]:
    """Return what `model` was dumped to without the fields that were added later and have their defaults."""
    kept: dict[str, Any] = {}
    for name, value in dumped.items():
        field, own = type(model).model_fields[name], getattr(model, name)
        if ADDED_LATER in field.metadata and own == field.get_default(call_default_factory=True):
            continue
        kept[name] = (
            omit_added_defaults(own, value) if isinstance(own, BaseModel) and isinstance(value, dict) else value
        )
    return kept


def _kinds(annotation: object) -> set[object]:
    """Return the plain types of an annotation, those of its elements where it is a list or a mapping."""
    arguments = get_args(annotation)
    return {annotation} if not arguments else {kind for argument in arguments for kind in _kinds(argument)} - {NoneType}


def _holds_boolean(value: object) -> bool:
    if isinstance(value, dict):
        mapping: dict[object, object] = value
        return any(map(_holds_boolean, mapping.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_boolean, value))
    return isinstance(value, bool)
