"""Which of the checkpoints that have landed are to be evaluated: a pure function of what is known of them.

What was wanted once stays wanted whatever lands later, but for the final checkpoint, which is only the final one until
training goes on.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from schemas.config import EvaluationConfig
from schemas.errors import ConfigError
from schemas.watch import LandedCheckpoint


def check_selection(config: EvaluationConfig) -> None:
    """Check that the section `watch` asks for any checkpoint at all.

    Raises:
        ConfigError: it does not.
    """
    evaluator, watch = config.evaluator, config.watch
    frequencies = (evaluator.freq_epochs, evaluator.freq_steps, evaluator.freq_secs)
    is_asked = watch.first or evaluator.eval_before_train or watch.final_after_s is not None
    if watch.select == "frequency" and not any(frequencies) and not is_asked:
        raise ConfigError(
            "watch.select is frequency, and evaluator.freq_epochs, freq_steps and freq_secs are all null: no "
            "checkpoint would be evaluated; set one of them to 1 or more, or watch.select to all"
        )


def select_checkpoints(
    landed: Sequence[LandedCheckpoint], config: EvaluationConfig, *, now: datetime
) -> list[LandedCheckpoint]:
    """Return those to be evaluated, in the order in which they are: the first one first.

    Raises nothing: a checkpoint whose step, epoch or time nobody knows is due by none of them.
    """
    watch = config.watch
    whole = _by_training([one for one in landed if one.number])  # what vanished since keeps its place among the rest
    usable = [one for one in whole if not one.is_vanished]
    wanted: set[str] = set()
    for series in _series(whole) if watch.select == "frequency" else [whole]:
        due = _due_by_frequency(series, config) if watch.select == "frequency" else {one.mark for one in series}
        turns = sorted((one for one in series if one.mark in due), key=lambda one: one.number)
        wanted.update(one.mark for one in turns[watch.every - 1 :: watch.every])
    if usable and (watch.first or config.evaluator.eval_before_train):
        wanted.add(usable[0].mark)
    if usable and watch.final_after_s is not None:
        last = max(usable, key=lambda one: one.landed_at)
        if now - last.landed_at >= timedelta(seconds=watch.final_after_s):
            wanted.add(_last_saved(usable).mark)
    chosen = [one for one in usable if one.mark in wanted]
    return chosen if watch.order == "oldest" else chosen[::-1]


def newest_of_each_training(landed: Sequence[LandedCheckpoint]) -> set[str]:
    """Return the marks of those that each training saved last."""
    return {_last_saved(_by_training(series)).mark for series in _series(landed)}


def _last_saved(landed: Sequence[LandedCheckpoint]) -> LandedCheckpoint:
    """Return the one saved last, of some by training step: one of an earlier training may have a later step."""
    return max(reversed(landed), key=lambda one: one.saved_at)


def _by_training(landed: Sequence[LandedCheckpoint]) -> list[LandedCheckpoint]:
    """By training step; one without a step comes after all that had been saved before it."""
    reached = -1
    places: dict[str, tuple[int, bool]] = {}
    for one in sorted(landed, key=lambda one: (one.saved_at, one.mark)):
        step = one.position.global_step
        reached = max(reached, -1 if step is None else step)
        places[one.mark] = (reached if step is None else step, step is None)
    return sorted(landed, key=lambda one: (places[one.mark], one.saved_at, one.mark))


def _series(landed: Sequence[LandedCheckpoint]) -> list[list[LandedCheckpoint]]:
    """Return the checkpoints of each training: those in one folder, and its last model, which may be in that itself."""
    parents = {one.path.parent for one in landed}
    series: dict[Path, list[LandedCheckpoint]] = {}
    for one in landed:
        series.setdefault(one.path if one.path in parents else one.path.parent, []).append(one)
    return list(series.values())


def _due_by_frequency(series: Sequence[LandedCheckpoint], config: EvaluationConfig) -> set[str]:
    """Return the marks of those at which one of the three frequencies falls due.

    Of a folder that was saved again at the same step each content is due where the first one is.
    """
    evaluator = config.evaluator
    contents: dict[tuple[Path, int | None], list[LandedCheckpoint]] = {}
    for one in series:
        contents.setdefault((one.path, one.position.global_step), []).append(one)
    firsts = [min(same, key=lambda one: one.number) for same in contents.values()]
    due: set[str] = set()
    if evaluator.freq_steps is not None:
        due |= _due_by_steps(firsts, evaluator.freq_steps)
    if evaluator.freq_epochs is not None:
        due |= _due_by_epochs(firsts, evaluator.freq_epochs)
    due = {one.mark for first, same in zip(firsts, contents.values(), strict=True) if first.mark in due for one in same}
    if evaluator.freq_secs is not None:
        due |= _due_by_time(series, timedelta(seconds=evaluator.freq_secs))
    return due


def _due_by_steps(series: Sequence[LandedCheckpoint], frequency: int) -> set[str]:
    """The first at or after each multiple of `frequency` finished steps: trainers save when they save."""
    due: set[str] = set()
    num_intervals = 0
    for one in series:
        if one.position.global_step is None:
            continue
        num_done = one.position.global_step + 1 - one.first_step
        if num_done // frequency > num_intervals:
            due.add(one.mark)
            num_intervals = num_done // frequency
    return due


def _due_by_epochs(series: Sequence[LandedCheckpoint], frequency: int) -> set[str]:
    """The ends of every `frequency` epochs.

    Where steps are counted from 0, so are epochs, and the name tells in which one the step was: the last checkpoint of
    an epoch is known once one of a later epoch has landed. Else the number of finished epochs is told: the first
    checkpoint that has them.
    """
    known = [one for one in series if one.position.epoch is not None]
    due: set[str] = set()
    for before, one in zip([None, *known], known, strict=False):
        epoch_before = 0 if before is None else before.position.epoch or 0
        if (one.position.epoch or 0) // frequency > epoch_before // frequency:
            end = before if one.first_step == 0 else one
            due.update(() if end is None else (end.mark,))
    return due


def _due_by_time(series: Sequence[LandedCheckpoint], interval: timedelta) -> set[str]:
    due: set[str] = set()
    last: datetime | None = None
    for one in sorted(series, key=lambda o: o.saved_at):
        if last is None:
            last = one.saved_at  # seconds count from the first that is known
        elif one.saved_at - last >= interval:
            due.add(one.mark)
            last = one.saved_at
    return due
