"""When a check is due."""

from datetime import UTC, datetime, timedelta

import pytest

from schemas.drift import DriftCheck, DriftConfig
from schemas.training_position import TrainingPosition
from tasks.drift.cadence import is_due

NOW = datetime(2030, 1, 2, tzinfo=UTC)


def last_check(*, step: int | None, epoch: int | None) -> DriftCheck:
    return DriftCheck(
        status="checked",
        drifted=False,
        violated=False,
        report=None,
        dataset="sums",
        reference_version="a",
        current_version="b",
        checked_at=NOW,
        position=TrainingPosition(global_step=step, epoch=epoch),
        settings="",
    )


@pytest.mark.parametrize(
    ("frequency", "step", "epoch", "hours", "expected"),
    [
        ({}, 100, 1, 0.0, True),
        ({"freq_steps": 50}, 149, 9, 99.0, False),
        ({"freq_steps": 50}, 150, 1, 0.0, True),
        ({"freq_steps": 50}, 99, 1, 0.0, True),
        ({"freq_steps": 50}, None, 1, 0.0, True),
        ({"freq_epochs": 5}, 900, 5, 99.0, False),
        ({"freq_epochs": 5}, 100, 6, 0.0, True),
        ({"freq_hours": 2.5}, None, None, 2.4, False),
        ({"freq_hours": 2.5}, None, None, 2.5, True),
        ({"freq_hours": 2.5}, None, None, -1.0, True),
        ({"freq_steps": 50, "freq_hours": 2.5}, 149, None, 3.0, True),
        ({"freq_steps": 50, "freq_hours": 2.5}, 149, None, 2.0, False),
    ],
)
def test_a_check_is_due(
    frequency: dict[str, float], step: int | None, epoch: int | None, hours: float, expected: bool
) -> None:
    config = DriftConfig.model_validate(frequency)
    position = TrainingPosition(global_step=step, epoch=epoch)
    last = last_check(step=100, epoch=1)
    assert is_due(config, last, position=position, now=NOW + timedelta(hours=hours)) is expected


def test_an_unknown_position_then_makes_a_check_due_now() -> None:
    position = TrainingPosition(global_step=100)
    last = last_check(step=None, epoch=None)
    assert is_due(DriftConfig(freq_steps=50), last, position=position, now=NOW)
