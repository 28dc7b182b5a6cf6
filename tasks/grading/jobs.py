"""What the grader asks of its processes, and what it hears back: one JSON line each."""

import json
from typing import Final, Literal, NamedTuple

JobKind = Literal["compare", "parse", "procedural", "reward"]


class Job(NamedTuple):
    """One question that needs computer algebra, a task's own scorer or the user's reward function."""

    kind: JobKind
    """compare: does the answer equal the gold; parse: can the gold be read; procedural: a task's own score; reward:
    what a function of the user's gives."""
    answer: str
    """The answer as found; empty for parse and reward."""
    gold: str
    """The gold answer; for procedural the entry, for reward the arguments of the call, as JSON."""
    task: str = ""
    """Name of the reasoning_gym task, or dotted path of the reward function; empty for the other kinds."""


JobOutcome = Literal["correct", "wrong", "unparsed", "bad_gold", "scored", "rewarded", "timeout", "crashed"]


class Reply(NamedTuple):
    """The answer to a job."""

    outcome: JobOutcome
    """What was found; `scored` and `rewarded` come with a score."""
    score: float | None = None
    """In [0, 1] of a procedural job that was scored; any finite number of a reward."""
    reason: str | None = None
    """Why, for bad_gold, timeout and crashed."""


MAX_REASON_CHARS: Final = 200
"""Replies stay small, so that those in flight always fit into a pipe."""


def encode(number: int, message: Job | Reply) -> bytes:
    """Return the line of a numbered message; ASCII only, so that lone surrogates in model output survive."""
    return json.dumps([number, *message]).encode("ascii") + b"\n"


def decode_job(line: bytes) -> tuple[int, Job]:
    """Read a line that `encode` made of a job."""
    number, *fields = json.loads(line)
    return number, Job(*fields)


def decode_reply(line: bytes) -> tuple[int, Reply]:
    """Read a line that `encode` made of a reply."""
    number, *fields = json.loads(line)
    return number, Reply(*fields)
