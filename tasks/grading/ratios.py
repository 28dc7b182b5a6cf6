"""Ratios such as `2:3`, `1:2:3` and `2 to 3`: equal when their members are proportional."""

import re
from fractions import Fraction
from itertools import pairwise
from typing import Final

from tasks.grading.markup import simplify_markup
from tasks.grading.rationals import exact_value

_MAX_MEMBERS: Final = 8
_TO: Final = re.compile(r"(?<=[\d}])\s*(?:\\text\s*\{\s*to\s*\}|\bto\b)\s*(?=[\d\\])")
_NOT_A_MEMBER: Final = re.compile(
    r"[=<>|,;]|\\text(?![a-zA-Z])|(?<![\\A-Za-z])[A-Za-z]{3}|\\(?:in|le|ge|ne|to|mid)(?![a-zA-Z])"
)


def split_ratio(text: str) -> list[str] | None:
    """Return the members of a ratio as LaTeX, or None when `text` is none."""
    if ":" not in text and "to" not in text:
        return None
    simplified = _TO.sub(":", simplify_markup(text))
    members = [member.strip() for member in simplified.split(":")]
    if not 2 <= len(members) <= _MAX_MEMBERS or not all(members) or _NOT_A_MEMBER.search(simplified):
        return None
    return members if all(member.count("{") == member.count("}") for member in members) else None


def compare_ratios(answer: str, gold: str) -> bool | None:
    """Compare two ratios of rational numbers, or one of two members with a number; None for everything else."""
    of_answer, of_gold = _read(answer), _read(gold)
    if of_answer is None or of_gold is None or (len(of_answer), len(of_gold)) == (1, 1):
        return None
    if len(of_answer) != len(of_gold):
        if 1 not in (len(of_answer), len(of_gold)):
            return False
        of_answer, of_gold = (
            [*members, Fraction(1)] if len(members) == 1 else members for members in (of_answer, of_gold)
        )
        if len(of_answer) != len(of_gold):
            return False
    crossed = zip(pairwise(of_answer), pairwise(of_gold), strict=True)
    return all(a * d == b * c for (a, b), (c, d) in crossed)


def _read(text: str) -> list[Fraction] | None:
    """Return the members as numbers; of a plain number the number alone."""
    members = split_ratio(text) or [text]
    values = [exact_value(member) for member in members]
    numbers = [value.value for value in values if value is not None]
    if len(numbers) != len(members) or (len(members) > 1 and 0 in numbers):
        return None
    return numbers


def as_tuple(text: str) -> str:
    r"""Return a ratio of three or more members as the tuple of its quotients by the first, for computer algebra."""
    members = split_ratio(text)
    if members is None or len(members) == 2:
        return text if members is None else rf"\frac{{{members[0]}}}{{{members[1]}}}"
    return "(" + ",".join(rf"\frac{{{member}}}{{{members[0]}}}" for member in members[1:]) + ")"
