"""What the grader asks of its processes, and what it hears back: one JSON line each."""

import json
from typing import Final, Literal, NamedTuple

JobKind = Literal["compare", "parse", "sample", "procedural", "reward"]


class Job(NamedTuple):
    """One question that needs computer algebra, a task's own scorer or the user's reward function."""

    kind: JobKind
    """compare: does the answer equal the gold; parse: can the gold be read; sample: do the two differ at a few points;
    procedural: a task's own score; reward: what a function of the user's gives."""
    answer: str
    """The answer as found; empty for parse and reward."""
    gold: str
    """The gold answer; for procedural the entry, for reward the arguments of the call, as JSON."""
    task: str = ""
    """Name of the reasoning_gym task, or dotted path of the reward function; empty for the other kinds."""


JobOutcome = Literal[
    "correct", "wrong", "unparsed", "bad_gold", "scored", "rewarded", "timeout", "crashed", "undecided"
]


class Reply(NamedTuple):
    """The answer to a job."""

    outcome: JobOutcome
    """What was found; `scored` and `rewarded` come with a score."""
    score: float | None = None
    """In [0, 1] of a procedural job that was scored; any finite number of a reward."""
    reason: str | None = None
    """Why, for bad_gold, timeout and crashed."""


DIED: Final = "the grading process died"
"""How the reason of `crashed` begins when the process of a job ended, as at the hands of the kernel."""
WALL_PER_CPU: Final = 6.0
"""Wall seconds that a comparison may take per second of CPU that it is allowed: for machines with too much to do."""
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
