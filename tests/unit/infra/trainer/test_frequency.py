"""Properties of schedules: what AReaL's fire at, whatever is asked of them."""

import json
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.trainer.frequency import Schedule, ScheduleState
from schemas.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a caller may pass: any object with these names."""

    freq_epochs: int | None = None
    freq_steps: int | None = None
    freq_secs: float | None = None


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def due_steps(schedule: Schedule, num_steps: int, steps_per_epoch: int, start: int = 0) -> list[int]:
    return [
        step
        for step in range(start, num_steps)
        if schedule.is_due(epochs=int(step % steps_per_epoch == steps_per_epoch - 1), steps=1)
    ]


frequencies = st.none() | st.integers(1, 9)


def test_epochs_and_steps_fire_where_areal_fires() -> None:
    assert due_steps(Schedule(Settings(freq_epochs=1)), 15, 5) == [4, 9, 14]
    assert due_steps(Schedule(Settings(freq_steps=3)), 12, 5) == [2, 5, 8, 11]
    assert due_steps(Schedule(Settings(freq_epochs=1), is_due_at_first=True), 15, 5) == [0, 4, 9, 14]
    assert due_steps(Schedule(Settings(freq_steps=3), is_due_at_first=True), 12, 5) == [0, 2, 5, 8, 11]
    assert due_steps(Schedule(Settings(freq_epochs=2, freq_steps=4)), 20, 5) == [3, 7, 9, 11, 15, 19]


def test_without_frequencies_nothing_is_due_the_first_call_apart() -> None:
    assert due_steps(Schedule(Settings()), 20, 5) == []
    assert due_steps(Schedule(Settings(), is_due_at_first=True), 20, 5) == [0]


@given(frequencies, frequencies, st.booleans(), st.integers(1, 7))
def test_triggers_count_apart_and_any_suffices(
    epochs: int | None, steps: int | None, at_first: bool, per_epoch: int
) -> None:
    both = due_steps(Schedule(Settings(freq_epochs=epochs, freq_steps=steps), is_due_at_first=at_first), 60, per_epoch)
    by_epochs = due_steps(Schedule(Settings(freq_epochs=epochs), is_due_at_first=at_first), 60, per_epoch)
    by_steps = due_steps(Schedule(Settings(freq_steps=steps)), 60, per_epoch)
    assert both == sorted({*by_epochs, *by_steps})


@given(frequencies, frequencies, st.booleans(), st.integers(1, 7), st.integers(0, 60))
def test_a_restart_at_any_step_changes_nothing(
    epochs: int | None, steps: int | None, at_first: bool, per_epoch: int, restart: int
) -> None:
    settings = Settings(freq_epochs=epochs, freq_steps=steps)
    uninterrupted = due_steps(Schedule(settings, is_due_at_first=at_first), 60, per_epoch)
    before, after = (Schedule(settings, is_due_at_first=at_first) for _ in range(2))
    first = due_steps(before, restart, per_epoch)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert first + due_steps(after, 60, per_epoch, start=restart) == uninterrupted


@given(frequencies, frequencies, st.integers(1, 7), st.integers(0, 60))
def test_without_a_state_it_goes_on_as_if_it_had_counted_from_the_start(
    epochs: int | None, steps: int | None, per_epoch: int, restart: int
) -> None:
    settings = Settings(freq_epochs=epochs, freq_steps=steps)
    uninterrupted = due_steps(Schedule(settings), 60, per_epoch)
    after = Schedule(settings, is_due_at_first=True)
    after.go_on_at(epochs=restart // per_epoch, steps=restart)
    assert due_steps(after, 60, per_epoch, start=restart) == [step for step in uninterrupted if step >= restart]


@given(st.lists(st.floats(0, 30), max_size=50), st.floats(0.5, 60))
def test_seconds_are_counted_from_the_last_time(gaps: list[float], frequency: float) -> None:
    clock = Clock()
    schedule = Schedule(Settings(freq_secs=frequency), clock=clock)
    last = clock()
    for gap in gaps:
        clock.now_s += gap
        expected = clock() - last >= frequency
        assert schedule.is_due(epochs=0, steps=1) == expected
        last = clock() if expected else last


def test_seconds_pass_while_the_trainer_is_down() -> None:
    clock = Clock()
    before, after = (Schedule(Settings(freq_secs=60), clock=clock) for _ in range(2))
    state = before.state_dict()
    clock.now_s += 61
    after.load_state_dict(state)
    assert after.is_due(epochs=0, steps=1)


def test_a_clock_that_is_set_back_starts_the_interval_anew() -> None:
    clock = Clock()
    schedule = Schedule(Settings(freq_secs=60), clock=clock)
    clock.now_s -= 3_600
    assert not schedule.is_due(epochs=0, steps=1)
    clock.now_s += 60
    assert schedule.is_due(epochs=0, steps=1)


def test_how_often_is_as_configured_not_as_saved() -> None:
    before, after = Schedule(Settings(freq_steps=100)), Schedule(Settings(freq_steps=3))
    due_steps(before, 2, 5)
    after.load_state_dict(before.state_dict())
    assert due_steps(after, 9, 5, start=2) == [2, 5, 8]


def test_a_state_of_areal_is_understood() -> None:
    counter = {
        "frequence_seconds": None,
        "frequency_steps": 3,
        "start_time": 5.0,
        "steps": 7,
        "last_time": 5.0,
        "last_steps": 5,
        "interval_steps": 2,
        "interval_seconds": 0.1,
        "initial_value": False,
    }
    schedule = Schedule(Settings(freq_steps=3), is_due_at_first=True)
    schedule.load_state_dict({"epoch": counter, "step": counter, "time": counter})
    assert due_steps(schedule, 14, 5, start=7) == [7, 10, 13]


@pytest.mark.parametrize("name", ["freq_epochs", "freq_steps", "freq_secs"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "3", True])
def test_a_frequency_that_is_not_positive_is_refused(name: str, value: object) -> None:
    settings = Settings(**{name: value})  # pyright: ignore[reportArgumentType] - what no type checker has seen
    with pytest.raises(ConfigError, match=rf"evaluator\.{name} must be .* got {value!r}; leave it out"):
        Schedule(settings)


@pytest.mark.parametrize("name", ["freq_epochs", "freq_steps"])
def test_half_a_step_is_refused(name: str) -> None:
    settings = Settings(**{name: 2.5})  # pyright: ignore[reportArgumentType] - what no type checker has seen
    with pytest.raises(ConfigError, match="a whole number of at least 1"):
        Schedule(settings)


@pytest.mark.parametrize("state", [{}, {"epoch": []}, {"epoch": {"steps": "2"}}, {"epoch": {"steps": math.nan}}])
def test_something_else_than_a_state_is_refused_and_changes_nothing(state: ScheduleState) -> None:
    schedule = Schedule(Settings(freq_steps=3))
    with pytest.raises(ConfigError, match=r"epoch\.steps.*start without a state"):
        schedule.load_state_dict(state)
    assert due_steps(schedule, 6, 5) == [2, 5]
