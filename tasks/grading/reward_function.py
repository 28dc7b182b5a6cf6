"""The user's own reward function: found by its dotted path, called as training calls it.

AReaL's signature: `(prompt: str, completions: str, prompt_ids: list[int], completion_ids: list[int], **data) -> float`.
The function is foreign code: it is imported and called in grading processes alone, where a crash or a hang costs the
sample at hand and nothing else.
"""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, cast

from infra.python_code import WHERE_FOUND, import_object
from schemas.dataset import EvalItem
from schemas.errors import ConfigError
from tasks.grading.jobs import Reply
from tasks.grading.pool import process_environment

_IMPORT_TIMEOUT_S: Final = 300.0
"""A module that imports torch from a cold network disk takes a minute."""
_OWN_ARGUMENTS: Final = ("prompt", "completions", "prompt_ids", "completion_ids")
_FIND: Final = "import sys; from tasks.grading.reward_function import find_function; find_function(sys.argv[1])"

RewardFunction = Callable[..., object]


def check_function(path: str) -> None:
    """Return if a process of its own can import the function at `path`.

    Modules are looked for in PYTHONPATH, among installed packages, then in the working directory.

    Raises:
        ConfigError: it cannot, with what Python said.
    """
    command = [sys.executable, "-P", "-c", _FIND, path]
    try:
        done = subprocess.run(
            command, env=process_environment(), capture_output=True, timeout=_IMPORT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise ConfigError(
            f"reward_fn is {path!r}, whose module was not imported within {_IMPORT_TIMEOUT_S:g} s; what it does at "
            "import must end"
        ) from exc
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConfigError(
            f"reward_fn is {path!r}, which cannot be imported ({lines[-1] if lines else 'no message'}); allowed: "
            f"{WHERE_FOUND}"
        )


@lru_cache(maxsize=8)
def find_function(path: str) -> RewardFunction:
    """Import the function at `path`.

    Raises:
        TypeError: what is there is no function.
        Exception: whatever the import raises.
    """
    found = import_object(path)
    if not callable(found):
        raise TypeError(f"{path} is a {type(found).__name__}, not a function")
    return found


def function_data(item: EvalItem) -> str:
    """Return the keyword arguments that a reward function gets for an item, as JSON: the row of the data, under
    `messages` the conversation, and under `answer` the gold unless the row has one."""
    messages = [message.model_dump() for message in item.messages]
    row = item.row or json.dumps(json.loads(item.grader_data)["entry"] if item.grader == "reasoning_gym" else {})
    return json.dumps({"answer": item.gold, "messages": messages} | json.loads(row))


def describe_call(
    prompt: str, completion: str, prompt_ids: Sequence[int], completion_ids: Sequence[int] | None, data_json: str
) -> str:
    """Return the arguments of one call as JSON; equal calls have equal texts.

    `completion_ids` is None for samples of a run that did not keep them; `data_json`: the keyword arguments.
    """
    return json.dumps([prompt, completion, prompt_ids, completion_ids, json.loads(data_json)])


def call_function(path: str, arguments: str) -> Reply:
    """Return what the function at `path` gives for the arguments that `describe_call` wrote.

    `crashed` with the reason when it raises, or returns no finite number: neither says anything of the model.
    """
    *own, data = cast("list[object]", json.loads(arguments))
    rest = {name: value for name, value in cast("Mapping[str, object]", data).items() if name not in _OWN_ARGUMENTS}
    try:
        value = find_function(path)(*own, **rest)
        reward = float(cast("float", value))
    except MemoryError:
        raise
    except Exception as exc:  # noqa: BLE001 - the user's code may raise anything; that is no verdict on the model
        return Reply("crashed", reason=f"{path} raised {type(exc).__name__}: {exc}")
    if not math.isfinite(reward):
        return Reply("crashed", reason=f"{path} returned {reward}, not a finite number")
    return Reply("rewarded", score=reward)
