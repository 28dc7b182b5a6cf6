"""When something falls due in training: every so many epochs, steps or seconds, whichever does first.

Owns the counting, with the semantics of AReaL's schedules (areal/utils/timeutil.py), so that a training config means
here what it means there. A trainer imports it: the standard library is all it needs.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from infra.trainer.ranks import find_longest
from schemas.errors import ConfigError

ScheduleState = dict[str, dict[str, float]]
"""What `Schedule.state_dict` returns: JSON, under the names that AReaL's state has."""


class Frequencies(Protocol):
    """How often something falls due; None where a unit does not matter."""

    @property
    def freq_epochs(self) -> int | None: ...
    @property
    def freq_steps(self) -> int | None: ...
    @property
    def freq_secs(self) -> float | None: ...


class _Trigger:
    """Falls due when `frequency` units have passed since it last did."""

    def __init__(self, frequency: float | None, position: float) -> None:
        self.frequency = frequency
        self.position = position
        self.last = position

    def move(self, position: float) -> float:
        """Go to `position` and return how far that is from where it last fell due.

        A clock that was set back starts the interval anew: else nothing would be due until it has caught up.
        """
        self.position, self.last = position, min(self.last, position)
        return position - self.last

    def go_on_at(self, position: float) -> None:
        """Be at `position`, as if counted from 0."""
        self.position, self.last = position, position - position % (self.frequency or 1)

    def is_due(self, passed: float) -> bool:
        """Whether `passed` units suffice; if so, the next interval starts here."""
        is_due = self.frequency is not None and passed >= self.frequency
        if is_due:
            self.last = self.position
        return is_due


class Schedule:
    """Three triggers, each counting from its own last time; any of them suffices.

    Epochs and steps are counted by the calls of `is_due`: ranks that make the same calls come to the same result. For
    seconds, where torch.distributed is initialised, the longest interval that any rank has seen counts on all of them;
    that takes one collective per call, and only when `freq_secs` is set.
    """

    def __init__(
        self,
        frequencies: Frequencies,
        *,
        is_due_at_first: bool = False,
        clock: Callable[[], float] = time.time,
        group: object | None = None,
    ) -> None:
        """Start to count.

        Args:
            frequencies: None in all of them: never due, the first call perhaps apart.
            is_due_at_first: Whether the first call is due, whatever the frequencies are.
            clock: Seconds, on a scale that outlives the process.
            group: Process group of torch.distributed that agrees on seconds; None for all ranks.

        Raises:
            ConfigError: a frequency that is not positive.
        """
        check_frequencies(frequencies)
        self._epochs = _Trigger(frequencies.freq_epochs, 0)
        self._steps = _Trigger(frequencies.freq_steps, 0)
        self._seconds = _Trigger(frequencies.freq_secs, clock())
        self._is_due_at_first = is_due_at_first
        self._clock = clock
        self._group = group

    def is_due(self, *, epochs: int, steps: int) -> bool:
        """Count what has passed since the last call; return whether anything has fallen due.

        Every rank has to call it equally often.
        """
        at_first, self._is_due_at_first = self._is_due_at_first, False
        by_epochs = self._epochs.is_due(self._epochs.move(self._epochs.position + epochs))
        by_steps = self._steps.is_due(self._steps.move(self._steps.position + steps))
        passed_s = self._seconds.move(self._clock())
        if self._seconds.frequency is not None:
            passed_s = find_longest(passed_s, self._group)
        by_seconds = self._seconds.is_due(passed_s)
        if at_first:
            # as in AReaL: epochs count from here, steps and seconds from the start
            self._epochs.last = self._epochs.position
        return at_first or by_epochs or by_steps or by_seconds

    def go_on_at(self, *, epochs: int, steps: int) -> None:
        """Count on from where training has come to, as if it had got there with these frequencies.

        For a trainer that keeps no state of this schedule; seconds count from now.
        """
        for trigger, position in ((self._epochs, epochs), (self._steps, steps)):
            trigger.go_on_at(position)
        self._is_due_at_first = False

    def state_dict(self) -> ScheduleState:
        """Return what `load_state_dict` needs to go on counting in another process."""
        epochs, steps = ({"steps": each.position, "last_steps": each.last} for each in (self._epochs, self._steps))
        return {
            "epoch": epochs | {"initial_value": self._is_due_at_first},
            "step": steps,
            "time": {"last_time": self._seconds.last},
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, object]]) -> None:
        """Go on counting from `state`, which may be one of AReaL's. How often something falls due stays as configured.

        Raises:
            ConfigError: it is no such state; nothing has changed.
        """
        loaded = [_read(state, *place) for place in _PLACES]
        self._epochs.position, self._epochs.last, at_first, self._steps.position, self._steps.last, seconds = loaded
        self._is_due_at_first = bool(at_first)
        self._seconds.last = seconds


_PLACES: Final = (
    ("epoch", "steps"),
    ("epoch", "last_steps"),
    ("epoch", "initial_value"),
    ("step", "steps"),
    ("step", "last_steps"),
    ("time", "last_time"),
)


def _read(state: Mapping[str, Mapping[str, object]], trigger: str, name: str) -> float:
    try:
        value = state[trigger][name]
    except (KeyError, TypeError, IndexError) as exc:
        raise ConfigError(
            f"the evaluator's state has no {trigger}.{name}; load what state_dict() returned, or start without a state"
        ) from exc
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(
            f"the evaluator's state has {trigger}.{name} = {value!r}, expected a finite number; load what "
            "state_dict() returned, or start without a state"
        )
    return value


def check_frequencies(frequencies: Frequencies) -> None:
    """Return if every frequency is positive, and a whole number where it counts epochs or steps.

    Raises:
        ConfigError: with the first that is not; what a trainer passes has seen no type checker.
    """
    for name, unit in (("freq_epochs", "epochs"), ("freq_steps", "steps"), ("freq_secs", "seconds")):
        value: object = getattr(frequencies, name)
        is_time = unit == "seconds"
        if value is not None and not _is_positive(value, whole=not is_time):
            allowed = "a number above 0" if is_time else "a whole number of at least 1"
            raise ConfigError(
                f"evaluator.{name} must be {allowed}, or None, got {value!r}; leave it out where {unit} do not matter"
            )


def _is_positive(value: object, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < math.inf and (isinstance(value, int) or not whole)
