"""Deployments of several configurations beside each other: names, triggers, and who is not replaced."""

import uuid
from pathlib import Path
from typing import Any

import pytest
from prefect.client.schemas.responses import DeploymentResponse

from flows.orchestration.deployments import read_deployments
from flows.orchestration.named_deployments import (
    LANDED,
    check_name,
    check_replaced,
    name_specs,
    narrow_to_root,
    set_of,
)
from flows.orchestration.registration import variable_of
from schemas.config import EvaluationConfig
from schemas.deployment import DeploymentSpec
from schemas.errors import ConfigError

SPECS = read_deployments()
DEFAULT: Any = SPECS[0].parameters["config"]


@pytest.mark.parametrize("name", ["a", "grpo-7b", "7", "x" * 40])
def test_a_name_of_words_and_dashes_is_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "A", "a.b", "a_b", "-a", "a-", "a--b", "a b", "a/b", "x" * 41, "a\n", "é"])
def test_another_is_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(ConfigError, match=r"--name is .* allowed: lower-case letters"):
        check_name(name)


def test_each_set_has_deployments_and_triggers_of_its_own_but_for_the_follow_up() -> None:
    assert name_specs(SPECS, "") == SPECS
    sets = {name: {spec.name: spec for spec in name_specs(SPECS, name)} for name in ("", "a", "on-landing")}
    assert set(sets["a"]) & set(sets[""]) == set(sets["a"]) & set(sets["on-landing"]) == {"follow-up"}
    assert {set_of(name) for name in sets["a"]} == {"a", ""}
    assert sets["a"]["follow-up"] == sets[""]["follow-up"]
    assert [trigger.name for trigger in sets["a"]["follow-up.a"].triggers] == [f"{LANDED} (a)"]
    assert sets["a"]["evaluate.a"].tags == ("milepost", "a")
    everything = [spec for each in sets.values() for spec in each.values() if spec.name != "follow-up"]
    variables = [variable_of(spec.name) for spec in everything]
    triggers = [trigger.name for spec in everything for trigger in spec.triggers]
    assert (len(set(variables)), len(set(triggers))) == (len(variables), len(triggers))


def test_variables_of_an_earlier_version_are_found() -> None:
    assert variable_of("evaluate-on-landing") == "milepost_registered_evaluate_on_landing"


def test_a_set_with_a_root_heeds_the_checkpoints_in_it() -> None:
    (spec,) = (each for each in name_specs(SPECS, "a") if each.name == "evaluate-on-landing.a")
    (trigger,) = narrow_to_root(spec, "/ck/run1/").triggers
    assert trigger.match == {"prefect.resource.id": "milepost.checkpoint./ck/run1/*"}
    (landed,) = narrow_to_root(name_specs(SPECS, "a")[-1], "/ck").triggers
    assert landed.match == {"prefect.resource.id": "milepost.checkpoint./ck/*", "milepost.alert": "send"}


def held(specs: tuple[DeploymentSpec, ...], config: dict[str, Any]) -> dict[str, DeploymentResponse | None]:
    """The deployments as a server holds them."""
    return {
        spec.name: DeploymentResponse.model_validate(
            {"name": spec.name, "flow_id": uuid.uuid4(), "parameters": {"config": config}}
        )
        for spec in specs
    }


@pytest.mark.parametrize(
    ("name", "before", "experiment", "refused"),
    [
        ("", DEFAULT, "Run_A", False),  # what a deploy without CONFIG has registered
        ("", DEFAULT | {"experiment_name": "Run_A"}, "Run_A", False),
        ("", DEFAULT | {"experiment_name": "Run_A", "seed": 2}, "Run_A", False),
        ("", DEFAULT | {"experiment_name": "b"}, "Run_A", True),
        ("", DEFAULT | {"seed": 2}, "Run_A", True),
        ("a", DEFAULT | {"experiment_name": "b"}, "Run_A", True),
    ],
)
def test_another_experiment_is_not_replaced(name: str, before: dict[str, Any], experiment: str, refused: bool) -> None:
    specs = name_specs(SPECS, name)
    config = EvaluationConfig.model_validate(DEFAULT | {"experiment_name": experiment})
    if not refused:
        check_replaced(specs, held(specs, before), config)
        return
    with pytest.raises(ConfigError, match=f"is of experiment '{experiment}'; add --name run-a .* or --replace"):
        check_replaced(specs, held(specs, before), config)


def test_nothing_is_replaced_where_nothing_is() -> None:
    config = EvaluationConfig.model_validate(DEFAULT | {"actor": {"path": str(Path("x"))}})
    check_replaced(SPECS, {spec.name: None for spec in SPECS}, config)
