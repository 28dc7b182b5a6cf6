"""The trainer's side: `Evaluator` decides when a step of training is followed by an evaluation, and never holds it up.

It imports the standard library alone (no Prefect, no pydantic, no torch), so that it runs in the trainer's environment
as it is: `pip install --no-deps PATH_TO_MILEPOST`, or the checkout on PYTHONPATH.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from infra.trainer.announcer import AREAL_FOLDER as AREAL_FOLDER
from infra.trainer.announcer import CheckpointAnnouncer as CheckpointAnnouncer
from infra.trainer.announcer import areal_root
from infra.trainer.frequency import Frequencies, Schedule, ScheduleState, check_frequencies
from schemas.errors import ConfigError

_MISSING: Final = "???"
"""What AReaL's sections hold where nothing was configured."""


@dataclass(frozen=True, slots=True)
class EvaluatorConfig:
    """When to evaluate, with the keys of a training config's section `evaluator`; whichever falls due first does."""

    freq_epochs: int | None = None
    """Epochs between evaluations; None: epochs do not matter."""
    freq_steps: int | None = None
    """Training steps between evaluations; None: steps do not matter."""
    freq_secs: float | None = None
    """Seconds between evaluations; None: time does not matter."""
    eval_before_train: bool = False
    """Whether the first call evaluates, whatever the frequencies are."""

    def __post_init__(self) -> None:
        """Refuse frequencies that are not positive with a ConfigError."""
        check_frequencies(self)


@dataclass(frozen=True, slots=True)
class FinetuneSpec:
    """How long training is; the last batch of an epoch is dropped where it is not full."""

    total_train_epochs: int
    dataset_size: int
    """Samples of one epoch."""
    train_batch_size: int
    """Samples of one step."""

    def __post_init__(self) -> None:
        """Refuse numbers below 1 with a ConfigError."""
        for name in ("total_train_epochs", "dataset_size", "train_batch_size"):
            value: int = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}; give the numbers that training runs with")

    @property
    def steps_per_epoch(self) -> int:
        """Training steps of one epoch."""
        return self.dataset_size // self.train_batch_size


class EvaluatorSettings(Frequencies, Protocol):
    """`EvaluatorConfig`, the section `evaluator` of Milepost's configuration, or AReaL's own: what has these."""

    @property
    def eval_before_train(self) -> bool: ...


class TrainingLength(Protocol):
    """`FinetuneSpec`, or AReaL's own."""

    @property
    def steps_per_epoch(self) -> int: ...


class Evaluator:
    """Evaluates at some steps of training; a drop-in for AReaL's class of that name.

    Call `evaluate` once after each step, on every rank.
    """

    def __init__(
        self,
        config: EvaluatorSettings,
        ft_spec: TrainingLength,
        *,
        announcer: CheckpointAnnouncer | None = None,
        clock: Callable[[], float] = time.time,
        group: object | None = None,
    ) -> None:
        """Start to count.

        Args:
            config: How often.
            ft_spec: When an epoch ends.
            announcer: Knows where checkpoints are; needed when `evaluate` gets no function, unless `config` is AReaL's
                own section, which says by its fileroot, experiment_name and trial_name where AReaL saves them.
            clock: Seconds, on a scale that outlives the process.
            group: Process group of torch.distributed that agrees on seconds; None for all ranks.

        Raises:
            ConfigError: a frequency that is not positive, or an epoch without a step.
        """
        self._schedule: Final = Schedule(config, is_due_at_first=config.eval_before_train, clock=clock, group=group)
        self._steps_per_epoch: Final = _checked_epoch(ft_spec)
        self._announcer = announcer
        self._config: Final = config

    def evaluate(self, fn: Callable[[], object] | None, epoch: int, step: int, global_step: int) -> None:
        """Call `fn` if an evaluation is due after this step.

        Args:
            fn: None announces the checkpoint of this step, saved before, and returns at once: `milepost watch`
                evaluates it elsewhere. What a function of your own raises reaches you.
            epoch: From 0.
            step: Of the epoch, from 0.
            global_step: Of training, from 0.

        Raises:
            ConfigError: `fn` is None, and nobody has said where checkpoints are.
        """
        if fn is None and self._announcer is None:
            self._announcer = _find_announcer(self._config)
        if fn is None and self._announcer is None:
            raise ConfigError(
                "Evaluator.evaluate got no function and does not know where checkpoints are; pass a function, or "
                "construct it with announcer=CheckpointAnnouncer(FOLDER), the folder that they are saved into"
            )
        if not self._schedule.is_due(epochs=int(step == self._steps_per_epoch - 1), steps=1):
            return
        if fn is not None:
            fn()
        elif self._announcer is not None:
            self._announcer.announce_step(epoch, step, global_step)

    def state_dict(self) -> ScheduleState:
        """Return what `load_state_dict` needs to go on counting after a restart; it is JSON."""
        return self._schedule.state_dict()

    def load_state_dict(self, state_dict: ScheduleState) -> None:
        """Go on counting from `state_dict`, which AReaL's class may have made.

        Raises:
            ConfigError: it is no such state; nothing has changed.
        """
        self._schedule.load_state_dict(state_dict)


def _find_announcer(config: EvaluatorSettings) -> CheckpointAnnouncer | None:
    """Return one for the folder that AReaL's own section tells; None where `config` is another, or tells nothing."""
    named: list[object] = [getattr(config, name, None) for name in ("fileroot", "experiment_name", "trial_name")]
    known = [name for name in named if isinstance(name, str) and name not in {"", _MISSING}]
    return CheckpointAnnouncer(areal_root(*known), folder=AREAL_FOLDER) if len(known) == len(named) else None


def _checked_epoch(ft_spec: TrainingLength) -> int:
    steps = ft_spec.steps_per_epoch
    if steps < 1:
        raise ConfigError(f"an epoch has {steps} steps, at least 1 is needed: lower train_batch_size; got {ft_spec}")
    return steps
