"""Names from folders and datasets in messages for people: data, whatever a chat or a mail program finds in them."""

from typing import Final

_MAX_LINE: Final = 2_000
"""Characters; a name can be longer than a chat's message may be."""
_MAX_TITLE: Final = 120
"""Characters."""


def to_title(event: str, checkpoint: str) -> str:
    """Return the title of a message about a checkpoint; `event`: what it is called for people.

    A long path is cut at its front: its end tells the checkpoints of a training apart.
    """
    subject, name = f"Milepost: {event}: ", to_plain_line(checkpoint)
    excess = len(subject) + len(name) - _MAX_TITLE
    return subject + (name if excess <= 0 else f"…{name[excess + 1 :]}")


def to_plain_line(text: str) -> str:
    """Return a text as one printable line without angle brackets.

    In those, chats find mentions and links, and mail programs markup.
    """
    flat = " ".join(text.replace("<", "‹").replace(">", "›").split())
    return "".join(letter for letter in flat if letter.isprintable())[:_MAX_LINE]
