"""Answers in words and choice letters, as normalised text."""

import re
from functools import lru_cache
from typing import Final

from tasks.grading.markup import simplify_markup

_TEXT_COMMAND: Final = re.compile(r"\\text\s*\{([^{}]*)\}")
_ARTICLE: Final = re.compile(r"^(?:the|an?)\s+")
_SYNONYMS: Final = {
    "does not exist": "undefined",
    "doesn't exist": "undefined",
    "dne": "undefined",
    "not defined": "undefined",
    "no solutions": "no solution",
    "there is no solution": "no solution",
    "there are no solutions": "no solution",
    "no real solutions": "no solution",
    "no real solution": "no solution",
    "empty set": "no solution",
    "null set": "no solution",
}
"""Wordings of the same statement."""
_LABEL: Final = r"(?:(?:the\s)?(?:correct\s)?(?:option|choice|answer)(?:\sis)?:?\s*)?"
_CHOICE: Final = re.compile(rf"{_LABEL}\(?([A-Za-z])\)?", re.IGNORECASE)
_CHOICE_WITH_TEXT: Final = re.compile(
    rf"{_LABEL}(?:\(([A-Za-z])\)\s*|([A-Za-z])(?:\)\s*|[.:]\s+)|((?-i:[A-J]))\s+[-–—]+\s+(?=\W?(?:[a-z]{{1,2}}\s)?[a-z]{{3}}))"
    r"(?P<rest>\S.{0,300})",
    re.IGNORECASE | re.DOTALL,
)
"""A letter in brackets, before a bracket, point or colon, or before a dash and words; `A - b` is a difference."""
_HEDGE: Final = re.compile(r"^\W*(?:or|and)\b|^\W*\(?[A-Ja-j]\)?\W*$", re.IGNORECASE)
"""What follows a letter when two letters stand side by side: `(C) or (D)`."""


def open_text(text: str) -> str:
    """Return the simplified answer with its `\\text{}` opened."""
    return _TEXT_COMMAND.sub(r"\1", simplify_markup(text))


@lru_cache(maxsize=8192)
def plain_text(text: str) -> str:
    """Return the words of an answer: `\\text{}` opened, case folded, white space and outer punctuation dropped."""
    text = open_text(text).replace("{", "").replace("}", "")
    words = _ARTICLE.sub("", " ".join(text.casefold().split()).strip(" .,;:!?\"'`()[]*_"))
    return _SYNONYMS.get(words, words)


@lru_cache(maxsize=8192)
def split_choice(text: str) -> tuple[str, str] | None:
    """Return the upper-case letter and the text behind it of `C`, `Option (C)`, `C. 12`, `C - east` or `(C) Cecile`."""
    opened = " ".join(open_text(text).replace("\\ ", " ").split())
    if match := _CHOICE.fullmatch(opened):
        return match[1].upper(), ""
    match = _CHOICE_WITH_TEXT.fullmatch(opened)
    if match is None or _HEDGE.search(match["rest"]):
        return None
    return (match[1] or match[2] or match[3]).upper(), match["rest"].strip()


def choice_letter(text: str) -> str | None:
    """Return the upper-case letter of an answer to a multiple choice; None for anything else, and for two letters."""
    choice = split_choice(text)
    return None if choice is None else choice[0]


def text_behind_choice(text: str) -> str | None:
    """Return the value behind a choice letter, `27` of `(B) 27`; None where there is no letter or no value."""
    choice = split_choice(text)
    return None if choice is None or not choice[1] or choice[0] > "J" else choice[1]
