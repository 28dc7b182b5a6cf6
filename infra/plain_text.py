"""Names from folders and datasets in messages for people: data, whatever a chat or a mail program finds in them."""

from typing import Final

_MAX_LINE: Final = 2_000
"""Characters; a name can be longer than a chat's message may be."""


def to_plain_line(text: str) -> str:
    """Return a text as one printable line without angle brackets.

    In those, chats find mentions and links, and mail programs markup.
    """
    flat = " ".join(text.replace("<", "‹").replace(">", "›").split())
    return "".join(letter for letter in flat if letter.isprintable())[:_MAX_LINE]
