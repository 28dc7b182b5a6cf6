"""What a fault is, and the moment at which it comes."""

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from benchmarks.faults.scene import N_SAMPLES, Scene

_LOOK_S: Final = 0.1
_START_UP_SHARE: Final = 0.15
_END_SHARE: Final = 0.15
_AT_THE_END: Final = 0.98
"""Share of finished samples from which on a run is at its end."""


def _nothing(scene: Scene) -> None:
    """Leave everything as it is."""


def _anywhere() -> str | None:
    """Return why a fault cannot be tried here: it can."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way for things to go wrong."""

    name: str
    """What --faults calls it."""
    inject: Callable[[Scene], bool] | None = None
    """Does it, and returns whether there was something to do it to. None: the settings alone bring it about."""
    heal: Callable[[Scene], None] = _nothing
    """Undoes it once the first command has ended, before the same command is given again."""
    surroundings: Callable[[Scene], AbstractContextManager[object]] = nullcontext
    """What the whole trial is done in."""
    overrides: tuple[str, ...] = ()
    """Settings of the commands."""
    unavailable: Callable[[], str | None] = _anywhere
    """Why it cannot be tried on this machine; None when it can."""
    needs_worker: bool = False
    """Whether it comes while a worker runs; else it may come as late as after the last sample."""
    changes_replicas: bool = False
    """Whether the run must go on with another number of replicas; else chance decides."""
    deadly_rate: float = 0.0
    """`engine.stand_in.deadly_item_rate`: these items have no sample."""
    hanging_rate: float = 0.0
    """`engine.stand_in.hanging_item_rate`: nor have these."""

    @property
    def settings(self) -> list[str]:
        """All settings of its commands."""
        rates = {"deadly": self.deadly_rate, "hanging": self.hanging_rate}
        return [*self.overrides, *(f"engine.stand_in.{kind}_item_rate={rate}" for kind, rate in rates.items() if rate)]


class Moment(NamedTuple):
    """When in a run."""

    phase: Literal["start-up", "generation", "end"]
    share: float
    """How far into the phase, in [0, 1)."""

    def __str__(self) -> str:
        """Return `generation 37%`."""
        return f"{self.phase} {self.share:.0%}"


def draw_moment(rng: random.Random) -> Moment:
    """Return a random moment: generation mostly, start-up and end often enough."""
    number, share = rng.random(), rng.random()
    if number < _START_UP_SHARE:
        return Moment("start-up", share)
    return Moment("end" if number > 1 - _END_SHARE else "generation", share)


def await_moment(fault: Fault, moment: Moment, scene: Scene) -> bool:
    """Wait for the moment; return False when the command ended before it."""
    command = scene.commands[-1]
    if moment.phase != "start-up":
        needed = scene.world.num_items * N_SAMPLES * (moment.share if moment.phase == "generation" else _AT_THE_END)
        while command.is_running and scene.num_finished() < max(1, needed):
            time.sleep(_LOOK_S)
    end_s = 0.0 if fault.needs_worker else scene.pace.end_s
    phase_s = {"start-up": scene.pace.startup_s, "generation": 0.0, "end": end_s}[moment.phase]
    until = time.monotonic() + moment.share * phase_s
    while command.is_running and time.monotonic() < until:
        time.sleep(min(_LOOK_S, max(0.0, until - time.monotonic())))
    return command.is_running
