"""The process that makes procedural problems: `python -m infra.datasets.sources.procedural_draw`.

It reads a DrawRequest from standard input and writes a DrawReply to standard output, both JSON. It is a process of its
own because five tasks of reasoning_gym iterate over sets of strings: only under a fixed PYTHONHASHSEED, which must be
set before an interpreter starts, are their problems the same in every run. The library's import (seconds, with sympy
and matplotlib) and its memory stay out of the controller, too.
"""

import json
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Final, Protocol, cast

from infra.datasets.cells import nearest
from infra.machine.python_code import claim_stdout
from schemas.base import Model
from schemas.errors import DatasetError

PREFIX: Final = "reasoning_gym:"

_MAX_GROWTH: Final = 16
"""A task is asked for at most this many times the wanted problems before it counts as exhausted."""

Entry = dict[str, object]
"""question, answer and metadata, as the library makes them."""


class DrawRequest(Model):
    """What to make."""

    tasks: tuple[str, ...]
    """Names in the order given; distinct."""
    size: int
    """Problems in all, at least one per task."""
    seed: int
    """Seed of every task."""
    parameters: dict[str, str]
    """What the path says beside size and seed, as text."""


class DrawnProblem(Model):
    """One problem."""

    task: str
    """Who made it, and who grades it."""
    entry: str
    """The library's entry as JSON, in ASCII: numbers of any size and half surrogates come through unchanged."""


class DrawReply(Model):
    """What was made, or why nothing was."""

    problems: tuple[DrawnProblem, ...] = ()
    """Tasks take turns, so that the first n hold each of them."""
    error: str = ""
    """The message for the user; empty when there are problems."""


class _Task(Protocol):
    """What is used of a task of the library."""

    def __getitem__(self, idx: int) -> Entry: ...

    def score_answer(self, answer: str | None, entry: Entry) -> float: ...


def draw(request: DrawRequest) -> tuple[DrawnProblem, ...]:
    """Return distinct problems, `size` in all, split evenly over the tasks.

    Raises:
        DatasetError: an unknown task or parameter, a refused value, a task with too few distinct problems, or one whose
            entries do not survive storage.
    """
    known = _registered_tasks()
    for name in request.tasks:
        if name not in known:
            raise DatasetError(
                f"reasoning_gym has no task {name!r}{nearest(name, known)} Allowed: {', '.join(sorted(known))}"
            )
    settings = assign_parameters(request, {name: _parameters_of(name) for name in request.tasks})
    share, rest = divmod(request.size, len(request.tasks))
    drawn = [
        _draw_task(name, share + (index < rest), request.seed, settings[name])
        for index, name in enumerate(request.tasks)
    ]
    return tuple(
        DrawnProblem(task=name, entry=entries[turn])
        for turn in range(share + bool(rest))
        for name, entries in zip(request.tasks, drawn, strict=True)
        if turn < len(entries)
    )


def assign_parameters(
    request: DrawRequest, defaults: Mapping[str, Mapping[str, object]]
) -> dict[str, dict[str, object]]:
    """Return each task's own parameters: `name=value` goes to every task that has it, `task.name=value` to one.

    Args:
        request: Its parameters are text.
        defaults: Per task, its parameters with their default values, which decide the types.

    Raises:
        DatasetError: no task has such a parameter, or the value is not of the default's type.
    """
    settings: dict[str, dict[str, object]] = {name: {} for name in request.tasks}
    for key, text in request.parameters.items():
        task, _, parameter = key.rpartition(".")
        owners = [name for name in request.tasks if task in ("", name) and parameter in defaults[name]]
        if not owners:
            allowed = sorted({parameter for name in request.tasks for parameter in defaults[name]} | {"size", "seed"})
            raise DatasetError(
                f"{'+'.join(request.tasks)} has no parameter {key!r}{nearest(parameter, allowed)} "
                f"Allowed: {', '.join(allowed)}"
            )
        for name in owners:
            settings[name][parameter] = _typed(name, parameter, text, defaults[name][parameter])
    return settings


def _typed(task: str, parameter: str, text: str, default: object) -> object:
    """Return the value that `text` stands for, of the type of the default."""
    if default is None or isinstance(default, str):
        return text
    try:
        value: object = json.loads(text)
    except ValueError:
        value = None
    if isinstance(default, (list, tuple)) and isinstance(value, list):
        return tuple(cast("list[object]", value)) if isinstance(default, tuple) else cast("list[object]", value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is type(default):
        return value
    raise DatasetError(
        f"{PREFIX}{task}: {parameter} must be of type {type(default).__name__} such as {json.dumps(default)}, "
        f"got {text!r}"
    )


def _registered_tasks() -> Sequence[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its dependencies are full of invalid escapes and deprecated calls
        import reasoning_gym
        from reasoning_gym.factory import DATASETS

        del reasoning_gym  # imported for its effect: it registers the tasks
    return [name for name in DATASETS if name != "composite"]


def _parameters_of(task: str) -> dict[str, object]:
    from reasoning_gym.factory import DATASETS

    config = DATASETS[task][1]()
    return {field.name: getattr(config, field.name) for field in fields(config) if field.name not in ("seed", "size")}


def _create(task: str, size: int, seed: int, settings: Mapping[str, object]) -> _Task:
    from reasoning_gym.factory import create_dataset

    try:
        return cast("_Task", create_dataset(task, size=size, seed=seed, **settings))
    except (AssertionError, ValueError, TypeError) as exc:
        chosen = ", ".join(f"{key}={value}" for key, value in settings.items()) or "its defaults"
        raise DatasetError(f"{PREFIX}{task} refuses {chosen} with size={size}: {exc or type(exc).__name__}") from exc


def _draw_task(task: str, count: int, seed: int, settings: Mapping[str, object]) -> list[str]:
    """Return `count` distinct entries in the form in which they are stored.

    Small tasks repeat themselves; a repeat would count one question twice and make error bars too narrow, so more
    entries are drawn until enough differ.
    """
    size = count
    while True:
        dataset = _create(task, size, seed, settings)
        distinct: dict[tuple[str, str], Entry] = {}
        for index in range(size):
            entry = _make(task, dataset, index)
            distinct.setdefault((str(entry["question"]), str(entry["answer"])), entry)
            if len(distinct) == count:
                return [_stored(task, dataset, entry) for entry in distinct.values()]
        if size >= count * _MAX_GROWTH:
            raise DatasetError(
                f"{PREFIX}{task} made only {len(distinct)} distinct problems in {size} draws, {count} are asked for; "
                "lower size or widen the task's parameters"
            )
        size *= 2


def _make(task: str, dataset: _Task, index: int) -> Entry:
    try:
        return dataset[index]
    except (AssertionError, LookupError, RuntimeError, TypeError, ValueError) as exc:
        raise DatasetError(
            f"{PREFIX}{task} cannot make problem {index}, change its parameters: {type(exc).__name__}: {exc}"
        ) from exc


def _stored(task: str, dataset: _Task, entry: Entry) -> str:
    """Return the entry as JSON, checked to be scored the same once it is read back."""
    metadata = cast("dict[str, object]", entry["metadata"])
    kept = {key: value for key, value in metadata.items() if _is_json(value)}
    text = json.dumps({**entry, "metadata": kept})
    stored = cast("Entry", json.loads(text))
    oracle = cast("str | None", entry["answer"])
    if stored != entry and dataset.score_answer(oracle, stored) != dataset.score_answer(oracle, entry):
        raise DatasetError(
            f"{PREFIX}{task} cannot be evaluated: its entries do not survive JSON, so that its own answers would be "
            "scored as wrong; choose another task"
        )
    return text


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def main() -> None:
    """Answer one request."""
    reply_to = os.fdopen(claim_stdout(), "w", encoding="utf-8")  # some tasks print their progress
    request = DrawRequest.model_validate_json(sys.stdin.buffer.read())
    try:
        reply = DrawReply(problems=draw(request))
    except DatasetError as exc:
        reply = DrawReply(error=str(exc))
    with reply_to:
        reply_to.write(reply.model_dump_json())


if __name__ == "__main__":
    main()
