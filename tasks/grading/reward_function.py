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

from infra.machine.python_code import WHERE_FOUND, import_object
from schemas.dataset import EvalItem
from schemas.errors import ConfigError
from tasks.grading.jobs import Reply
from tasks.grading.pool import process_environment

_IMPORT_TIMEOUT_S: Final = 300.0
"""A module that imports torch from a cold network disk takes a minute."""
_OWN_ARGUMENTS: Final = ("prompt", "completions", "prompt_ids", "completion_ids")
_SIGNATURE: Final = "(prompt: str, completions: str, prompt_ids: list[int], completion_ids: list[int], **data) -> float"
_NOT_IMPORTED: Final = 97
"""Exit code that no function is likely to end with."""
_CALL: Final = f"""
import json, os, sys, traceback
from infra.machine.python_code import claim_stdout
from tasks.grading.reward_function import call_function, find_function
replies = claim_stdout()
try:
    find_function(sys.argv[1])
except BaseException:
    traceback.print_exc()
    os._exit({_NOT_IMPORTED})
os.write(replies, json.dumps(call_function(sys.argv[1], sys.stdin.read())).encode())
os._exit(0)
"""
"""Imports a function and calls it once; what it prints goes to stderr."""

RewardFunction = Callable[..., object]


def check_function(path: str, arguments: str) -> None:
    """Return if a process of its own can import the function at `path` and gets a number from it.

    Modules are looked for in PYTHONPATH, among installed packages, then in the working directory.

    Args:
        path: of the function.
        arguments: of one call, as `plausible_call` writes them.

    Raises:
        ConfigError: it cannot, with what Python said, how the function is called, and what of.
    """
    command = [sys.executable, "-P", "-c", _CALL, path]
    try:
        done = subprocess.run(
            command,
            env=process_environment(),
            input=arguments.encode("ascii"),
            capture_output=True,
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise ConfigError(
            f"reward_fn is {path!r}, which was not imported and called once within {_IMPORT_TIMEOUT_S:g} s; what it "
            "does must end"
        ) from exc
    if done.returncode == _NOT_IMPORTED:
        raise ConfigError(
            f"reward_fn is {path!r}, which cannot be imported ({_last_line(done.stderr)}); allowed: {WHERE_FOUND}"
        )
    if done.returncode:
        raise ConfigError(f"reward_fn is {path!r}, which ends its process when called once: {_last_line(done.stderr)}")
    reply = Reply(*json.loads(done.stdout))
    if reply.outcome != "rewarded":
        _, completion, _, _, data = json.loads(arguments)
        raise ConfigError(
            f"reward_fn is {path!r}, which gives no score for the first row of the data and the completion "
            f"{completion!r}: {reply.reason}. It is called as {_SIGNATURE} and returns a finite number; the keys of "
            f"the row's data: {', '.join(data)}"
        )


def plausible_call(prompt: str, gold: str, data_json: str) -> str:
    """Return the arguments of a call with a completion that a model might give, as `describe_call` does."""
    return describe_call(prompt, f"The answer is \\boxed{{{gold}}}.", [1, 2, 3], [4, 5, 6], data_json)


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "no message"


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
