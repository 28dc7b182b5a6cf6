"""prefect.yaml is what Milepost reads of it: a misspelt key is an error, an entrypoint is a flow."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from schemas.deployment import DeploymentFile

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tree() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))
    return found


def test_the_file_declares_the_five_deployments(tree: dict[str, Any]) -> None:
    specs = {spec.name: spec for spec in DeploymentFile.model_validate(tree).deployments}
    assert set(specs) == {"evaluate", "evaluate-on-landing", "evaluate-recurring", "reconcile", "follow-up"}
    assert [trigger.expect for trigger in specs["evaluate-on-landing"].triggers] == [("milepost.checkpoint.landed",)]
    schedules = [schedule for spec in specs.values() for schedule in spec.schedules]
    assert not any(schedule.active for schedule in schedules)
    assert {schedule.cron is None for schedule in schedules} == {True, False}


def test_each_entrypoint_is_a_flow(tree: dict[str, Any]) -> None:
    for spec in DeploymentFile.model_validate(tree).deployments:
        module, _, name = spec.entrypoint.rpartition(".")
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8")
        flow = name.replace("_", "-")
        assert re.search(rf'@flow\(\s*name="{flow}"', source)
        assert f"def {name}(" in source


@pytest.mark.parametrize(
    ("place", "key"),
    [
        (("deployments", 0), "entry_point"),
        (("deployments", 0, "work_pool"), "job_variable"),
        (("deployments", 1, "triggers", 0), "foreach"),
        (("deployments", 2, "schedules", 0), "activ"),
        (("deployments", 3, "concurrency_limit"), "colision_strategy"),
        ((), "deployment"),
    ],
)
def test_a_misspelt_key_is_refused_by_name(tree: dict[str, Any], place: tuple[str | int, ...], key: str) -> None:
    node: Any = tree
    for step in place:
        node = node[step]
    node[key] = 1
    with pytest.raises(ValidationError, match=key):
        DeploymentFile.model_validate(tree)


@pytest.mark.parametrize("change", [{"interval": 60}, {"cron": None}])
def test_a_schedule_has_one_rhythm(tree: dict[str, Any], change: dict[str, Any]) -> None:
    tree["deployments"][2]["schedules"][0].update(change)
    with pytest.raises(ValidationError, match="exactly one of cron and interval"):
        DeploymentFile.model_validate(tree)
