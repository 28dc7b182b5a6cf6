"""What people are told of an event: what, how much, against what, since when, and where to look."""

from typing import Final, NamedTuple

from infra.text.plain_text import to_plain_line, to_title
from schemas.events import Event

_MAX_LINE: Final = 200
"""Characters that a person reads in one line of a chat."""


class Message(NamedTuple):
    """One message."""

    title: str
    """One line."""
    text: str
    """Some lines."""


def compose(event: Event, training: str, *, run_page: str) -> Message:
    """Return the message about `event`.

    `training`: experiment and trial. `run_page`: URL of the Prefect run, empty where there is none.

    Names come from folders and datasets: each is kept on one line and without angle brackets.
    """
    step = "" if event.global_step is None else f" (step {event.global_step:,})"
    dataset = str(getattr(event, "dataset", ""))
    lines = {
        "checkpoint": f"{event.checkpoint}{step}",
        "dataset": dataset,
        "since": event.since,
        "experiment": training,
        "see": event.link,
        "run": run_page,
    }
    told = [
        *_lines_of(to_plain_line(event.message)),
        *(f"{name}: {to_plain_line(value)}" for name, value in lines.items() if value),
    ]
    return Message(to_title(event.title, event.checkpoint), "\n".join(told))


def _lines_of(message: str) -> list[str]:
    """Return a message as lines: a long one, such as that of a drift of many features, has a line for each part."""
    if len(message) <= _MAX_LINE:
        return [message]
    first, *others = message.split("; ")
    return [first, *(f"- {part}" for part in others)]
