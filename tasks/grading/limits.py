"""What is never handed to computer algebra: text that is no answer, or numbers that no machine can write out.

The limits are generous against every public set and spare the kill of a process for what is foreseeable.
"""

import re
from typing import Final

from tasks.grading.markup import MAX_ANSWER_CHARS

_MAX_DEPTH: Final = 40
_MAX_DIGITS: Final = 400
_MAX_EXPONENT: Final = 100_000
_MAX_FACTORIAL: Final = 20_000
_MAX_BINOMIAL: Final = 50_000

_LONG_NUMBER: Final = re.compile(rf"\d{{{_MAX_DIGITS + 1}}}")
_BETWEEN: Final = r"[\s{(]{0,8}"
_TOWER: Final = re.compile(rf"\d[\s}})]{{0,8}}(?:\^|\*\*){_BETWEEN}\d+[\s}})]{{0,8}}(?:\^|\*\*){_BETWEEN}(?:\d|[-+])")
_EXPONENT: Final = re.compile(rf"(?:\^|\*\*){_BETWEEN}[-+]?\s?(\d+)")
_FACTORIAL: Final = re.compile(r"(\d+)[\s})]{0,8}!")
_BINOMIAL: Final = re.compile(
    rf"\\[dt]?binom{_BETWEEN}(\d+)|(\d+)[\s}}]{{0,8}}\\choose(?![A-Za-z])|(?<![A-Za-z])[CP]\s?\(\s?(\d+)\s?,"
)
_ITERATED_FACTORIAL: Final = re.compile(r"![\s})]{0,8}!|\^[\s{(]{0,8}\d+[\s})]{0,8}!")


def why_too_hard(text: str) -> str | None:
    """Return why `text` is not handed to computer algebra, or None. Linear in its length."""
    if len(text) > MAX_ANSWER_CHARS:
        return f"it has {len(text)} characters, an answer at most {MAX_ANSWER_CHARS}"
    if not _is_shallow(text):
        return f"its brackets nest more than {_MAX_DEPTH} deep"
    if _LONG_NUMBER.search(text):
        return f"it holds a number of more than {_MAX_DIGITS} digits"
    if _TOWER.search(text) or any(int(match[1]) > _MAX_EXPONENT for match in _EXPONENT.finditer(text)):
        return f"it holds a power beyond an exponent of {_MAX_EXPONENT}"
    if _ITERATED_FACTORIAL.search(text) or any(int(match[1]) > _MAX_FACTORIAL for match in _FACTORIAL.finditer(text)):
        return f"it holds a factorial beyond {_MAX_FACTORIAL}!"
    for match in _BINOMIAL.finditer(text):
        if max(int(group) for group in match.groups() if group) > _MAX_BINOMIAL:
            return f"it holds a binomial coefficient beyond {_MAX_BINOMIAL}"
    return None


def _is_shallow(text: str) -> bool:
    depth = 0
    for character in text:
        if character in "{([":
            depth += 1
            if depth > _MAX_DEPTH:
                return False
        elif character in "})]":
            depth = max(0, depth - 1)
    return True
