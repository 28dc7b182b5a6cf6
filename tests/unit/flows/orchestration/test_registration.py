"""What people have edited of a deployment stays until what is declared of the same value changes."""

import uuid
from typing import Any

import pytest
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from pydantic import JsonValue

from flows.orchestration.automations import secrets_in
from flows.orchestration.registration import merge, merge_schedules

NIGHTLY = "0 2 * * *"


@pytest.mark.parametrize(
    ("registered", "held", "declared", "merged"),
    [
        ("a", "a", "a", "a"),
        ("a", "edited", "a", "edited"),
        ("a", "edited", "b", "b"),
        (None, "held", "b", "b"),
        (["x"], ["x", "mine"], ["x"], ["x", "mine"]),
        ({"k": 1}, {"k": 1, "mine": 2}, {"k": 1}, {"k": 1, "mine": 2}),
        ({"k": 1}, {}, {"k": 1}, {}),
        ({"k": 1, "old": 1}, {"k": 1, "old": 1}, {"k": 1}, {"k": 1}),
        ({"env": {"A": "1"}}, {"env": {"A": "2", "B": "3"}}, {"env": {"A": "1", "C": "4"}},
         {"env": {"A": "2", "B": "3", "C": "4"}}),
        (None, {"mine": 2, "k": 0}, {"k": 1}, {"mine": 2, "k": 1}),
    ],
)  # fmt: skip
def test_an_edit_stays_until_the_declaration_changes(
    registered: JsonValue, held: JsonValue, declared: JsonValue, merged: JsonValue
) -> None:
    assert merge(registered, held, declared) == merged
    assert merge(declared, merged, declared) == merged


@pytest.mark.parametrize(
    ("registered", "held", "declared", "changed"),
    [
        (NIGHTLY, NIGHTLY, NIGHTLY, False),
        (NIGHTLY, "0 5 * * *", NIGHTLY, False),
        (NIGHTLY, None, NIGHTLY, False),
        (NIGHTLY, NIGHTLY, "0 3 * * *", True),
        (None, None, NIGHTLY, True),
        (None, "0 5 * * *", NIGHTLY, False),  # by an earlier version, which noted nothing
    ],
)
def test_a_schedule_stays_as_people_have_it(
    registered: str | None, held: str | None, declared: str, changed: bool
) -> None:
    def content(cron: str) -> JsonValue:
        found: Any = {**CronSchedule(cron=cron, timezone="UTC").model_dump(mode="json"), "parameters": {}}
        return found

    schedules = [DeploymentSchedule(slug=None, schedule=CronSchedule(cron="1 1 * * *"), active=True)]
    if held is not None:
        schedules.append(DeploymentSchedule(slug="nightly", schedule=CronSchedule(cron=held, timezone="UTC")))
    before = DeploymentResponse.model_validate({"name": "d", "flow_id": uuid.uuid4(), "schedules": schedules})
    wanted = DeploymentScheduleCreate(
        slug="nightly", schedule=CronSchedule(cron=declared, timezone="UTC"), active=False, parameters={}
    )
    known = {} if registered is None else {"nightly": content(registered)}
    assert set(merge_schedules(known, before, [wanted])) == ({"nightly"} if changed else set())


@pytest.mark.parametrize(
    ("parameters", "secrets"),
    [
        ({"config": {"alerts": {"slack": {"secret": "env:A"}, "email": {"secret": "block:b"}, "on": ["failed"]}}},
         {"env:A", "block:b"}),
        ({"config": {"alerts": {"slack": None}}}, set()),
        ({"config": {"alerts": None}}, set()),
        ({"config": None}, set()),
        ({}, set()),
        # of deployments that are not Milepost's
        ({"config": "conf/prod.yaml"}, set()),
        ({"config": ["a"]}, set()),
        ({"config": {"alerts": True}}, set()),
        ({"config": {"alerts": ["slack"]}}, set()),
        ({"config": {"alerts": {"slack": "#channel", "email": {"to": "x"}, "webhook": {"secret": 3}}}}, set()),
    ],
)  # fmt: skip
def test_secrets_are_found_in_milepost_configurations_alone(parameters: dict[str, Any], secrets: set[str]) -> None:
    assert secrets_in(parameters) == secrets
