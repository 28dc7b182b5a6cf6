"""The data contract: schema, non-null, unique ids, parseable golds, length bounds and value sets.

Owns which rules a dataset gets; must not run them. Built in code from the profile of the reference, so that a dataset
needs no hand-written suite and no stored one goes out of date.
"""

from collections.abc import Iterator
from typing import Final, Literal

from schemas.base import Model

RuleKind = Literal["columns", "not_null", "unique", "null", "text_length", "value_set"]

LENGTH_FACTOR: Final = 2
"""A prompt may be so many times longer than the longest of the reference, or shorter than the shortest: halves of one
population keep within it, a file that holds something else does not."""


class DatasetProfile(Model):
    """What the contract needs to know of the reference."""

    min_prompt_length: int
    """Characters of its shortest prompt."""
    max_prompt_length: int
    """Characters of its longest."""
    has_answers: bool
    """Whether every row has a gold answer."""
    value_sets: dict[str, tuple[str, ...]]
    """Values of each subset key that has a closed set of them: no value occurs once only, so that a value never seen
    before is next to impossible (Good 1953: the chance of one is the share of values seen once)."""


class Rule(Model):
    """One rule for every row."""

    name: str
    """Name of the rule in reports, such as `item_id is unique`."""
    kind: RuleKind
    """What it asks. `null`: the column, which holds a reason, must be empty."""
    column: str | None = None
    """Of which column; None when it is about the table."""
    columns: tuple[str, ...] = ()
    """Columns that must be there."""
    low: int | None = None
    """Shortest text in characters."""
    high: int | None = None
    """Longest one."""
    values: tuple[str, ...] = ()
    """Values that may occur."""


class RuleResult(Model):
    """Whether a rule holds."""

    name: str
    """Name of the rule."""
    holds: bool
    """Whether every row obeys."""
    num_rows: int
    """Rows looked at."""
    num_violations: int
    """Rows that do not; 0 where the rule is about the table."""
    item_ids: tuple[str, ...] = ()
    """The first 20 of them."""
    details: str = ""
    """What was seen instead."""


def build_contract(profile: DatasetProfile) -> tuple[Rule, ...]:
    """Return the rules that follow from a profile."""
    return tuple(_rules(profile))


def _rules(profile: DatasetProfile) -> Iterator[Rule]:
    yield Rule(name="the columns are there", kind="columns", columns=("item_id", "prompt", "answer"))
    yield Rule(name="item_id is set", kind="not_null", column="item_id")
    yield Rule(name="item_id is unique", kind="unique", column="item_id")
    yield Rule(name="prompt is set", kind="not_null", column="prompt")
    yield Rule(
        name="prompt has a usual length",
        kind="text_length",
        column="prompt",
        low=max(1, profile.min_prompt_length // LENGTH_FACTOR),
        high=max(1, profile.max_prompt_length * LENGTH_FACTOR),
    )
    if profile.has_answers:
        yield Rule(name="answer is set", kind="not_null", column="answer")
        yield Rule(name="answer can be graded", kind="null", column="gold_problem")
    for key, values in profile.value_sets.items():
        yield Rule(name=f"{key} has a known value", kind="value_set", column=key, values=values)
