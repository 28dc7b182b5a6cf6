"""What passes between sources, adapters and validation: rows, sources and problems."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Row = Mapping[str, object]
"""One record as its file has it: column name to value."""


class Turn(NamedTuple):
    """One turn as the data has it; schemas.dataset.ChatMessage once the conversation is complete."""

    role: Literal["system", "user", "assistant"]
    """Who speaks."""
    content: str
    """What is said."""


class SourceRow(NamedTuple):
    """A record with its place, so that a message can point at it."""

    number: int
    """From 1: the line of a .jsonl file, the record of any other source (a CSV header is not one)."""
    values: Row
    """Empty when there is a problem."""
    problem: str = ""
    """Why the record cannot be read; empty when it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows and what is known of how they are read."""

    rows: Iterator[SourceRow]
    """The records in the source's order, read as they are asked for."""
    notes: tuple[str, ...] = ()
    """What a user should know of how it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A row understood, before any instruction is added."""

    turns: tuple[Turn, ...]
    """The conversation as the data has it; its last turn is the user's."""
    gold: str
    """The gold answer."""
    item_id: str | None = None
    """The data's own id; None where it has none."""
    subsets: dict[str, str] = field(default_factory=dict[str, str])
    """Strata of the item."""
    cluster: str | None = None
    """Equal in problems that belong together; None for one that stands alone."""
    solution: str | None = None
    """The worked solution, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """How the rows of one layout are understood."""

    read: Callable[[Row], Problem]
    """Pure; raises DatasetError with what is wrong with the row."""
    prompt_suffix: str
    """The instruction that is added to a problem unless the configuration has its own."""
    optional: Mapping[str, str] = field(default_factory=dict[str, str])
    """Columns that a row may lack, but not every row, with the key of the configuration that names each."""
