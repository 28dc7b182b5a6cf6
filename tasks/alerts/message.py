"""What people are told of an event: what, how much, against what, since when, and where to look."""

from typing import Final, NamedTuple

from infra.plain_text import to_plain_line
from schemas.config import EvaluationConfig
from schemas.events import Event

_MAX_TITLE: Final = 120


class Message(NamedTuple):
    """One message."""

    title: str
    """One line."""
    text: str
    """Some lines."""


def compose(event: Event, config: EvaluationConfig, *, run_page: str) -> Message:
    """Return the message about `event`; `run_page`: URL of the Prefect run, empty where there is none.

    Names come from folders and datasets: each is kept on one line and without angle brackets.
    """
    step = "" if event.global_step is None else f" (step {event.global_step:,})"
    dataset = str(getattr(event, "dataset", ""))
    lines = {
        "checkpoint": f"{event.checkpoint}{step}",
        "dataset": dataset,
        "since": event.since,
        "experiment": f"{config.experiment_name}/{config.trial_name}",
        "report": event.link,
        "run": run_page,
    }
    told = [
        to_plain_line(event.message),
        *(f"{name}: {to_plain_line(value)}" for name, value in lines.items() if value),
    ]
    return Message(_title(f"Milepost: {event.title}: ", to_plain_line(event.checkpoint)), "\n".join(told))


def _title(subject: str, checkpoint: str) -> str:
    """A long path is cut at its front: its end tells the checkpoints of a run apart."""
    excess = len(subject) + len(checkpoint) - _MAX_TITLE
    return subject + (checkpoint if excess <= 0 else f"…{checkpoint[excess + 1 :]}")
