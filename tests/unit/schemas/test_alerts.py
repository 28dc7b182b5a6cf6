"""The section `alerts`: addresses are named, never written; unknown events are refused."""

import pytest
from pydantic import ValidationError

from schemas.alerts import AlertsConfig, AlertTarget


@pytest.mark.parametrize("secret", ["env:SLACK_URL", "block:team-slack"])
def test_an_address_is_named(secret: str) -> None:
    assert AlertTarget(secret=secret).secret == secret


@pytest.mark.parametrize(
    "secret", ["https://hooks.slack.com/services/T/B/X", "mailtos://u:p@host", "env:", "env:A B", "block:A_b", "SLACK"]
)
def test_an_address_itself_is_refused(secret: str) -> None:
    with pytest.raises(ValidationError, match="names where the address is kept"):
        AlertTarget(secret=secret)


def test_a_target_gets_what_it_names_else_what_the_section_names() -> None:
    config = AlertsConfig.model_validate(
        {"slack": {"secret": "env:A"}, "email": {"secret": "env:B", "events": "completed"}, "on": ["drift"]}
    )
    assert {kind: config.events_of(target) for kind, target in config.targets.items()} == {
        "slack": ("drift",),
        "email": ("completed",),
    }


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(ValidationError, match="drift"):
        AlertsConfig.model_validate({"on": ["drfit"]})
