"""The rules of values hold for every field of every section, whichever way a value comes in."""

import json
from collections.abc import Iterator
from types import NoneType
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from schemas.base import Section
from schemas.comparison import CompareConfig
from schemas.config import load_config
from schemas.config.keys import KeySpec, key_specs
from schemas.deployment import ConcurrencySpec, ScheduleSpec, TriggerSpec
from schemas.errors import ConfigError
from schemas.evaluation import EvaluationConfig

NUMERIC = [spec for spec in key_specs().values() if spec.kinds & {int, float} and bool not in spec.kinds]
BASE = {"actor": {"path": "ckpt"}, "valid_dataset": {"path": "d", "columns": {"prompt": "q", "gold": "a"}}}


def tree_of(values: dict[tuple[str, ...], object]) -> dict[str, object]:
    tree = json.loads(json.dumps(BASE))
    for path, value in values.items():
        node = tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = value
    return tree


def wrong_value(spec: KeySpec, value: object) -> object:
    return [value] if spec.type_name.startswith("list of") else {"x": value} if spec.is_mapping else value


def refused_keys(exc: ValidationError) -> set[str]:
    return {".".join(str(part) for part in error["loc"] if not isinstance(part, int)) for error in exc.errors()}


@pytest.mark.parametrize("value", [True, False, "many", "", ".inf", [[1]]], ids=repr)
def test_what_is_no_number_is_refused_from_file_command_line_form_and_python(tmp_path, value: object) -> None:
    wrong = {spec.path: wrong_value(spec, value) for spec in NUMERIC}
    every = {spec.dotted for spec in NUMERIC}
    assert len(every) > 50
    tree = tree_of(wrong)
    with pytest.raises(ValidationError) as form:
        EvaluationConfig.model_validate_json(json.dumps(tree))
    with pytest.raises(ValidationError) as python:
        EvaluationConfig(**tree)
    assert every <= refused_keys(form.value)
    assert every <= refused_keys(python.value)
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    with pytest.raises(ConfigError) as file:
        load_config(tmp_path / "wrong.yaml")
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(BASE), encoding="utf-8")
    with pytest.raises(ConfigError) as command_line:
        load_config(tmp_path / "base.yaml", [f"{'.'.join(path)}={json.dumps(item)}" for path, item in wrong.items()])
    for message in (str(file.value), str(command_line.value)):
        assert [key for key in every if f"- {key} = " not in message] == []


@pytest.mark.parametrize("value", [True, float("nan"), float("inf")], ids=repr)
@pytest.mark.parametrize("spec", NUMERIC, ids=lambda spec: spec.dotted)
def test_a_section_made_in_python_refuses_it_by_itself(spec: KeySpec, value: object) -> None:
    """Sections are made alone too: `GradingConfig(timeout_s=True)`."""
    section = EvaluationConfig if len(spec.path) == 1 else key_specs()[spec.path[:-1]].model
    assert section is not None
    with pytest.raises(ValidationError) as caught:
        section(**{spec.path[-1]: wrong_value(spec, value)})
    assert spec.path[-1] in {error["loc"][0] for error in caught.value.errors()}


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def sections_under(model: type[BaseModel]) -> set[type[BaseModel]]:
    nested = {found for field in model.model_fields.values() for found in models_in(field.annotation)}
    return {model}.union(*map(sections_under, nested))


def test_every_section_has_the_one_base() -> None:
    sections = sections_under(EvaluationConfig)
    assert len(sections) > 20
    assert [section.__name__ for section in sections if not issubclass(section, Section)] == []


@pytest.mark.parametrize(
    ("section", "values"),
    [
        (CompareConfig, {"alpha": True}),
        (CompareConfig, {"seed": False}),
        (ConcurrencySpec, {"limit": True}),
        (ScheduleSpec, {"slug": "a", "interval": True}),
        (ScheduleSpec, {"slug": "a", "interval": float("inf")}),
        (TriggerSpec, {"type": "event", "name": "a", "match": {}, "expect": ["e"], "threshold": True}),
    ],
)
def test_what_else_a_user_writes_has_the_same_rules(section: type[BaseModel], values: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"expected a number|finite"):
        section(**values)


def test_numbers_are_read_alike_from_text() -> None:
    """A number in quotes is that number, as in AReaL's files; so is one from `${oc.env:SLURM_NTASKS}`."""
    config = EvaluationConfig.model_validate(tree_of({("gconfig", "n_samples"): "4", ("grading", "timeout_s"): "2.5"}))
    assert (config.gconfig.n_samples, config.grading.timeout_s) == (4, 2.5)


def test_kinds_that_hold_no_number_take_booleans() -> None:
    assert all(NoneType not in spec.kinds for spec in key_specs().values())
    config = EvaluationConfig.model_validate(tree_of({("gconfig", "greedy"): True, ("oom", "shrink"): False}))
    assert (config.gconfig.greedy, config.oom.shrink) == (True, False)
