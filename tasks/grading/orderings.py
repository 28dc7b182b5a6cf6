"""Orderings of names such as `b > a > c`: equal when they put the same names in the same order."""

import re
from typing import Final

from tasks.grading.markup import simplify_markup

_RELATION: Final = re.compile(r"\\(?:le|ge|lt|gt)(?![a-zA-Z])|[<>]")
_NAME: Final = re.compile(r"[A-Za-z]\w*(?:_\{?\w+\}?|'|\([\w+-]{1,8}\))?")
_SIGNS: Final = {r"\le": "<=", r"\ge": ">=", r"\lt": "<", r"\gt": ">"}
_FLIPPED: Final = {">": "<", ">=": "<="}


def read_ordering(text: str) -> tuple[str, ...] | None:
    """Return names and signs from the least to the greatest; None when `text` is no chain of three names or more."""
    simplified = simplify_markup(text)
    signs = [_SIGNS.get(match.group(), match.group()) for match in _RELATION.finditer(simplified)]
    names = ["".join(name.split()) for name in _RELATION.split(simplified)]
    if len(names) < 3 or not all(_NAME.fullmatch(name) for name in names):
        return None
    if signs[0] in _FLIPPED:
        names.reverse()
        signs = [_FLIPPED.get(sign, "?") for sign in reversed(signs)]
    if not set(signs) <= {"<", "<="}:
        return None  # a < b > c orders nothing
    return tuple(part for pair in zip(names, [*signs, ""], strict=True) for part in pair)


def compare_orderings(answer: str, gold: str) -> bool | None:
    """Compare two orderings; None where one of them is none."""
    of_gold, of_answer = read_ordering(gold), read_ordering(answer)
    return None if of_gold is None or of_answer is None else of_gold == of_answer
