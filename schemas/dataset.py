"""Evaluation items as every source delivers them, before any prompt is rendered."""

from typing import Literal, NamedTuple

from pydantic import Field

from schemas.base import Model

GraderName = Literal["math", "reasoning_gym", "function"]
"""Who decides: mathematical equality, the scorer of the reasoning_gym task, or the user's own reward function."""


class ChatMessage(Model):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    """Speaker of the turn."""
    content: str
    """What is said, as the dataset has it."""


class EvalItem(Model):
    """One problem with its gold answer."""

    item_id: str
    """Stable name: the dataset's own id, else a digest of prompt and gold."""
    messages: tuple[ChatMessage, ...]
    """The conversation to answer; its last turn is the user's."""
    gold: str
    """The gold answer in the dataset's own form; every gold of a loaded dataset is known to parse."""
    grader: GraderName = "math"
    """Which grader decides."""
    grader_data: str = ""
    """What that grader needs beyond the gold, as JSON: for reasoning_gym the task and entry, for a reward function the
    keyword arguments of its call; empty for math."""
    subsets: dict[str, str] = Field(default_factory=dict)
    """Strata to report apart, such as {"subject": "Algebra", "level": "5"}."""
    cluster_id: str | None = None
    """Equal in items that depend on each other, such as perturbations of one question; None for an item that stands
    alone."""
    solution: str | None = None
    """The dataset's worked solution, where it has one."""
    prompt_suffix: str = ""
    """The instruction that ends the last turn, which is no part of the problem."""
    row: str = ""
    """The row as its source has it, as JSON; empty unless it was asked for."""


class RefusedRow(NamedTuple):
    """A row that cannot be used."""

    row: int
    """From 1: the line of a .jsonl file, the record of any other source."""
    reason: str
    """Reason for which the row cannot be used."""


class LoadedDataset(Model):
    """A dataset ready for planning: unique ids, parseable golds, non-empty prompts."""

    name: str
    """Name of the dataset in reports, such as `gsm8k` or `reasoning_gym:chain_sum`."""
    version: str
    """Digest over every item in order: two loads with one version are the same data."""
    items: tuple[EvalItem, ...]
    """The items in the source's order; at least one."""
    notes: tuple[str, ...] = ()
    """What a user should know of how the data was read, such as rows left out on request."""
    skipped: tuple[RefusedRow, ...] = ()
    """The rows left out because they cannot be used (`valid_dataset.invalid_rows: skip`)."""
