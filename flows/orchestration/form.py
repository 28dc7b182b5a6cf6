"""The schema by which Prefect's page draws the form of a deployment, in the order that people read it in.

The page sorts the fields of each section by `position`. Without one it takes the order of the stored JSON, and Postgres
keeps none.
"""

from collections.abc import Iterable
from typing import Any, Final

from prefect.flows import Flow
from prefect.utilities.callables import parameter_schema

from schemas.config import EvaluationConfig

_FIRST: Final = ("actor", "valid_dataset", "gconfig", "rollout")
"""Sections of the configuration that people change from run to run: what is evaluated, on what, how, on which GPUs."""
_LAST: Final = "config"
"""Parameter that fills many screens: what stands behind it is not found."""

FormSchema = dict[str, Any]
"""A JSON schema as Prefect's server takes it."""


def form_schema(flow: "Flow[..., Any]") -> FormSchema:
    """Return the schema of a flow's parameters, where each field has its `position` in the form."""
    schema = parameter_schema(flow).model_dump_for_openapi()
    properties: FormSchema = schema["properties"]
    _number(properties, sorted(properties, key=lambda name: name == _LAST))
    for title, definition in schema.get("definitions", {}).items():
        fields: FormSchema = definition.get("properties", {})
        first = _FIRST if title == EvaluationConfig.__name__ else ()
        _number(
            fields, sorted(fields, key=lambda name, first=first: first.index(name) if name in first else len(first))
        )
    return schema


def _number(properties: FormSchema, order: Iterable[str]) -> None:
    for position, name in enumerate(order):
        properties[name]["position"] = position
