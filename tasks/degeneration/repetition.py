"""Whether a text ends in a loop: the same words again and again until it was cut.

Owns the rule; a text that stopped by itself is never asked about, for a loop does not stop.
"""

from typing import Final

_MAX_PERIOD: Final = 300
"""Longest unit of a loop in characters: a few sentences."""
_MIN_REPEATS: Final = 3
"""Times that the unit stands at the end."""
_MIN_LENGTH: Final = 60
"""Shortest loop in characters: a row of digits or of dots is a loop only when it is longer than what people write."""


def ends_in_loop(text: str) -> bool:
    """Whether the end of `text` is one unit, repeated at least three times and over at least 60 characters.

    The end has period p when it equals itself moved by p characters. Only those p are tried at which the last 20
    characters, a third of the shortest loop, occur before: none in most texts.
    """
    tail = text.rstrip()[-_MAX_PERIOD * _MIN_REPEATS :]
    if len(tail) < _MIN_LENGTH:
        return False
    ending = tail[-(_MIN_LENGTH // _MIN_REPEATS) :]
    start = len(tail) - len(ending)
    found = tail.rfind(ending, 0, -1)
    while found >= max(0, start - _MAX_PERIOD):
        period = start - found
        length = max(_MIN_LENGTH, _MIN_REPEATS * period)
        if length <= len(tail) and tail[-length:-period] == tail[len(tail) - length + period :]:
            return True
        found = tail.rfind(ending, 0, found + len(ending) - 1)
    return False
