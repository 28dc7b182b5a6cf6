"""Procedural tasks with verifiable answers: `reasoning_gym:<task>[+<task>...][?size=200&seed=1&...]`.

The library is imported only when such a path is asked for: its `__init__` imports every task, and with them sympy and,
for one cellular automaton, matplotlib (4 to 7 s). There is no way to import a single task without that.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Protocol, cast
from urllib.parse import parse_qsl

from infra.datasets.cells import nearest, shown
from infra.datasets.conversation import compose
from infra.datasets.digests import content_id
from infra.datasets.rows import Turn
from schemas.dataset import EvalItem
from schemas.errors import DatasetError
from schemas.valid_dataset import ValidDatasetConfig

PREFIX: Final = "reasoning_gym:"
DEFAULT_SIZE: Final = 200
"""Items when the path names no size: a standard error of 3.5 points at an accuracy of 50%."""
PROMPT_SUFFIX: Final = "\nPut your final answer within \\boxed{}."
"""The tasks' questions say what form an answer has but not where it stands."""

_MAX_GROWTH: Final = 16
"""A task is asked for at most this many times the wanted items before it counts as exhausted."""
_HIGHEST: Final = {"size": 1_000_000, "seed": 2**32 - 1}

Entry = dict[str, object]
"""question, answer and metadata, as the library makes them."""


class _Task(Protocol):
    """What is used of a task of the library."""

    def __getitem__(self, idx: int) -> Entry: ...

    def score_answer(self, answer: str | None, entry: Entry) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPath:
    """A path taken apart."""

    tasks: tuple[str, ...]
    """Names in the order given."""
    size: int
    """Items in all."""
    seed: int
    """Seed of every task."""
    parameters: dict[str, str]
    """What is left for the tasks' own configurations, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProceduralItems:
    """Items that were drawn."""

    name: str
    """The path without its parameters."""
    items: list[EvalItem]
    """At least one; tasks take turns, so that the first n items hold each of them."""


def parse_path(path: str, *, seed: int) -> TaskPath:
    """Return the parts of a path; `seed` is taken when the path has none.

    Raises:
        DatasetError: no task, a task named twice, a parameter named twice, or a size or seed that is no number.
    """
    names, _, query = path.removeprefix(PREFIX).partition("?")
    tasks = tuple(names.split("+"))
    if not all(tasks) or len(set(tasks)) < len(tasks):
        raise DatasetError(
            f"{path!r} must name distinct tasks joined by '+', such as {PREFIX}chain_sum+basic_arithmetic?size=200"
        )
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as exc:
        raise DatasetError(f"{path!r}: the part after '?' must read key=value&key=value: {exc}") from exc
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise DatasetError(f"{path!r} sets a parameter twice; remove one")
    size = _whole_number(path, "size", parameters.pop("size", str(DEFAULT_SIZE)), low=len(tasks))
    drawn_seed = _whole_number(path, "seed", parameters.pop("seed", str(seed)), low=0)
    return TaskPath(tasks=tasks, size=size, seed=drawn_seed, parameters=parameters)


def load_tasks(config: ValidDatasetConfig, *, seed: int) -> ProceduralItems:
    """Return distinct items of the path's tasks, `size` in all, split evenly; the same for the same path and seed.

    Raises:
        DatasetError: an unknown task or parameter, a refused value, a task with too few distinct items, or one whose
            entries do not survive storage.
    """
    path = parse_path(config.path, seed=seed)
    known = _registered_tasks()
    for name in path.tasks:
        if name not in known:
            raise DatasetError(
                f"reasoning_gym has no task {name!r}{nearest(name, known)} Allowed: {', '.join(sorted(known))}"
            )
    settings = assign_parameters(path, {name: _parameters_of(name) for name in path.tasks})
    share, rest = divmod(path.size, len(path.tasks))
    drawn = [_draw(name, share + (index < rest), path.seed, settings[name]) for index, name in enumerate(path.tasks)]
    rounds = range(share + bool(rest))
    turns = [(name, *pairs[i]) for i in rounds for name, pairs in zip(path.tasks, drawn, strict=True) if i < len(pairs)]
    items = [_build_item(name, entry, stored, config) for name, entry, stored in turns[: config.limit]]
    return ProceduralItems(name=PREFIX + "+".join(path.tasks), items=items)


def assign_parameters(path: TaskPath, defaults: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Return each task's own parameters: `name=value` goes to every task that has it, `task.name=value` to one.

    Args:
        path: The path; its parameters are text.
        defaults: Per task, its parameters with their default values, which decide the types.

    Raises:
        DatasetError: no task has such a parameter, or the value is not of the default's type.
    """
    settings: dict[str, dict[str, object]] = {name: {} for name in path.tasks}
    for key, text in path.parameters.items():
        task, _, parameter = key.rpartition(".")
        owners = [name for name in path.tasks if task in ("", name) and parameter in defaults[name]]
        if not owners:
            allowed = sorted({parameter for name in path.tasks for parameter in defaults[name]} | {"size", "seed"})
            raise DatasetError(
                f"{'+'.join(path.tasks)} has no parameter {key!r}{nearest(parameter, allowed)} "
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


def _whole_number(path: str, key: str, text: str, *, low: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12) or not low <= int(text) <= _HIGHEST[key]:
        raise DatasetError(f"{path!r}: {key} must be a whole number in [{low}, {_HIGHEST[key]}], got {text!r}")
    return int(text)


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


def _draw(task: str, count: int, seed: int, settings: Mapping[str, object]) -> list[tuple[Entry, Entry]]:
    """Return `count` distinct entries, each with the form in which it is stored.

    Small tasks repeat themselves; a repeat would count one question twice and make error bars too narrow, so more
    entries are drawn until enough differ.
    """
    size = count
    while True:
        dataset = _create(task, size, seed, settings)
        distinct: dict[tuple[str, str], Entry] = {}
        for index in range(size):
            entry = dataset[index]
            distinct.setdefault((str(entry["question"]), str(entry["answer"])), entry)
            if len(distinct) == count:
                return [(entry, _stored(task, dataset, entry)) for entry in distinct.values()]
        if size >= count * _MAX_GROWTH:
            raise DatasetError(
                f"{PREFIX}{task} made only {len(distinct)} distinct problems in {size} draws, {count} are asked for; "
                "lower size or widen the task's parameters"
            )
        size *= 2


def _stored(task: str, dataset: _Task, entry: Entry) -> Entry:
    """Return the entry as it comes back from JSON, checked to be scored the same."""
    metadata = cast("dict[str, object]", entry["metadata"])
    kept = {key: value for key, value in metadata.items() if _is_json(value)}
    stored = cast("Entry", json.loads(json.dumps({**entry, "metadata": kept})))
    oracle = cast("str | None", entry["answer"])
    if stored != entry and dataset.score_answer(oracle, stored) != dataset.score_answer(oracle, entry):
        raise DatasetError(
            f"{PREFIX}{task} cannot be evaluated: its entries do not survive JSON, so that its own answers would be "
            "scored as wrong; choose another task"
        )
    return stored


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _build_item(task: str, entry: Entry, stored: Entry, config: ValidDatasetConfig) -> EvalItem:
    question, answer = str(entry["question"]), entry["answer"]
    if not question.strip():
        raise DatasetError(f"{PREFIX}{task} made an empty question: {shown(entry)}; change its parameters")
    gold = "" if answer is None else str(answer)
    turns = (Turn("user", question),)
    return EvalItem(
        item_id=f"{task}-{content_id(turns, gold)}",
        messages=compose(turns, config=config, default_suffix=PROMPT_SUFFIX),
        gold=gold,
        grader="reasoning_gym",
        grader_data=json.dumps({"task": task, "entry": stored}, ensure_ascii=False),
        subsets={"task": task},
    )
