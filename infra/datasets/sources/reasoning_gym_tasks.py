"""Procedural tasks with verifiable answers: `reasoning_gym:<task>[+<task>...][?size=200&seed=1&...]`.

Owns the path and the items; the problems themselves are made by `procedural_draw` in a process of its own, which says
why.
"""

import json
import subprocess
import sys
from typing import Final
from urllib.parse import parse_qsl, urlencode

from infra.datasets.conversation import choose_suffix, compose
from infra.datasets.digests import content_id
from infra.datasets.rows import Turn
from infra.datasets.sources.procedural_draw import PREFIX as PREFIX
from infra.datasets.sources.procedural_draw import DrawnProblem, DrawReply, DrawRequest
from infra.machine.python_code import child_environment, last_lines
from schemas.dataset import EvalItem
from schemas.errors import DatasetError
from schemas.valid_dataset import ValidDatasetConfig

DEFAULT_SIZE: Final = 200
"""Items when the path names no size: a standard error of 3.5 points at an accuracy of 50%."""
PROMPT_SUFFIX: Final = "\nPut your final answer within \\boxed{}."
"""The tasks' questions say what form an answer has but not where it stands. It does not harm a model too small to obey:
SmolLM2-135M solved 18 of 48 easy sums with this line, 10 without."""

_HIGHEST: Final = {"size": 1_000_000, "seed": 2**32 - 1}
_SEED_STEP: Final = 2**20


def load_tasks(config: ValidDatasetConfig, *, seed: int) -> list[EvalItem]:
    """Return distinct items of the path's tasks, `size` in all, split evenly; the same for the same path and seed.

    Tasks take turns, so that the first n items hold each of them.

    Raises:
        DatasetError: an unknown task or parameter, a refused value, a task with too few distinct items, or one whose
            entries do not survive storage.
    """
    request = parse_path(config.path, seed=seed)
    problems = _draw_apart(request)
    return [_build_item(problem, config) for problem in problems[: config.limit]]


def advance_seed(path: str, steps: int, *, seed: int) -> str:
    """Return the path with its seed (`seed` when it has none) moved on so far that no problem is drawn again.

    Item i is drawn from seed + i: a step of 2^20 is above the largest size.
    """
    request = parse_path(path, seed=seed)
    moved = (request.seed + steps * _SEED_STEP) % (_HIGHEST["seed"] + 1)
    query = urlencode({**request.parameters, "size": request.size, "seed": moved})
    return f"{PREFIX}{'+'.join(request.tasks)}?{query}"


def parse_path(path: str, *, seed: int) -> DrawRequest:
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
    return DrawRequest(tasks=tasks, size=size, seed=drawn_seed, parameters=parameters)


def _whole_number(path: str, key: str, text: str, *, low: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12) or not low <= int(text) <= _HIGHEST[key]:
        raise DatasetError(f"{path!r}: {key} must be a whole number in [{low}, {_HIGHEST[key]}], got {text!r}")
    return int(text)


def _draw_apart(request: DrawRequest) -> tuple[DrawnProblem, ...]:
    """Return what a process of its own draws. PYTHONHASHSEED fixes the order of sets, on which some tasks depend."""
    # the dependencies of the package are full of invalid escapes and deprecated calls
    environment = child_environment(PYTHONHASHSEED="0", PYTHONWARNINGS="ignore")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "infra.datasets.sources.procedural_draw"],
        input=request.model_dump_json().encode(),
        capture_output=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        raise DatasetError(
            f"{PREFIX}{'+'.join(request.tasks)}: the process that makes the problems ended with exit code "
            f"{done.returncode}; lower size, or see what `milepost doctor` misses. Its last lines:\n"
            f"{last_lines(done.stderr)}"
        )
    reply = DrawReply.model_validate_json(done.stdout)
    if reply.error:
        raise DatasetError(reply.error)
    return reply.problems


def _build_item(problem: DrawnProblem, config: ValidDatasetConfig) -> EvalItem:
    entry: dict[str, object] = json.loads(problem.entry)
    question, answer = str(entry["question"]), entry["answer"]
    gold = "" if answer is None else str(answer)  # tasks with many right answers name none
    turns = (Turn("user", question),)
    return EvalItem(
        item_id=f"{problem.task}-{content_id(turns, gold)}",
        messages=compose(turns, config=config, default_suffix=PROMPT_SUFFIX),
        gold=gold,
        grader="reasoning_gym",
        grader_data=json.dumps({"task": problem.task, "entry": entry}, ensure_ascii=False),
        subsets={"task": problem.task},
        prompt_suffix=choose_suffix(config, PROMPT_SUFFIX),
    )
