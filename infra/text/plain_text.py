"""Names from folders and datasets in messages for people: data, whatever a terminal, a chat or a mail program finds in
them."""

import re
import unicodedata
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


_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
"""Colours, as engines write them into their logs."""


def to_terminal_line(text: str) -> str:
    """Return a text as one line that a terminal shows and obeys in nothing.

    Control characters (escapes, window titles, line breaks), marks that turn the direction of text, invisible ones and
    halves of surrogate pairs are shown as Python writes them, such as `\\x1b` and `\\u202e`.
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def to_terminal_text(text: str) -> str:
    """Return a message as lines for a terminal; those after the first are indented, so that none looks like another
    message, whatever stands in a name."""
    first, *others = text.split("\n")
    return "\n".join([to_terminal_line(first), *(f"  {to_terminal_line(line).removeprefix('  ')}" for line in others)])


def to_terminal_log(text: str) -> str:
    """Return a log as lines for a terminal: line breaks and tabs stay, colours go."""
    lines = _COLOUR.sub("", text).expandtabs().split("\n")
    return "\n".join(to_terminal_line(line.rstrip("\r").rpartition("\r")[2]) for line in lines)  # progress bars


def escape_json(document: str) -> str:
    """Return a JSON document that is equal and that a terminal obeys in nothing."""
    if document.isprintable():
        return document
    return "".join(letter if _is_shown(letter) else _json_escape(letter) for letter in document)


def _is_shown(letter: str) -> bool:
    return letter.isprintable() or letter == "\n"


def _json_escape(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _visible(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if unicodedata.category(letter) == "Zs" else letter.encode("unicode_escape").decode("ascii")
