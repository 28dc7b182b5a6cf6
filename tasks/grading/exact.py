"""The fast path: comparisons that need no computer algebra, decided only where there is no doubt.

Rationals are compared exactly, texts and choice letters as normalised strings, times, bases, ratios, sets and orderings
by rules of their own; everything else is left open (None).
"""

import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Final

from tasks.grading.bases import based_number, compare_bases
from tasks.grading.markup import MAX_ANSWER_CHARS, comparison_key, simplify_markup
from tasks.grading.numeric import agrees_when_rounded
from tasks.grading.orderings import compare_orderings, read_ordering
from tasks.grading.rationals import exact_value, values_agree
from tasks.grading.ratios import compare_ratios, split_ratio
from tasks.grading.sets import compare_sets, read_set
from tasks.grading.texts import choice_letter, open_text, plain_text, text_behind_choice
from tasks.grading.times import clock_time, compare_times
from tasks.grading.units import area_for, unit_ratio

_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_NOT_TEXT: Final = re.compile(r"[\\^_=<>{}+*/|]|\b(?:sqrt|sinh?|cosh?|tanh?|log|infinity|infty)\b")
_SHORT_WORDS: Final = frozenset({"yes", "no", "odd", "none of these", "undefined"})
_ASSIGNMENT: Final = re.compile(
    r"([A-Za-z](?:_\{?\w\}?)?|[A-Z]{2,3}|\\text\s*\{[^{}=]{1,40}\})\s*(?:=\s*(?=[^=\s])|(?=\\approx(?![a-zA-Z])))"
)
_APPROXIMATE: Final = re.compile(
    r"^(?:\\(?:approx|simeq|doteq|sim)(?![a-zA-Z])|~|\\text\s*\{\s*(?:about|around|approximately|roughly)\s*\})\s*"
    r"|^(?:about|approximately)\s+",
    re.IGNORECASE,
)
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d+,\d+")


class GoldKind(StrEnum):
    """How a gold is compared."""

    NUMBER = "number"
    """A rational number, exactly."""
    CHOICE = "choice"
    """One letter, as of a multiple choice."""
    TIME = "time"
    """A time of day."""
    TEXT = "text"
    """Words, as normalised text."""
    SYMBOLIC = "symbolic"
    """Mathematics, by computer algebra."""


@lru_cache(maxsize=8192)
def classify_gold(gold: str) -> GoldKind:
    """Say how answers are compared with `gold`, by its form alone."""
    if exact_value(gold) is not None:
        return GoldKind.NUMBER
    if choice_letter(gold) is not None:
        return GoldKind.CHOICE
    if clock_time(gold) is not None:
        return GoldKind.TIME
    simplified = simplify_markup(gold)
    opened = open_text(gold)
    is_text = bool(_WORD.search(opened)) or plain_text(gold) in _SHORT_WORDS or simplified == rf"\text{{{opened}}}"
    is_text = is_text and not _NOT_TEXT.search(opened) and not has_form(gold)
    return GoldKind.TEXT if is_text else GoldKind.SYMBOLIC


@lru_cache(maxsize=8192)
def has_form(gold: str) -> bool:
    """Say whether a rule of this package reads the gold as a base, a ratio, a set or an ordering."""
    readers = (based_number, split_ratio, read_set, read_ordering)
    return _approximation(gold) is not None or any(reader(gold) is not None for reader in readers)


# ---------------------------------------------------------------------------------------------- comparison


def _strip_assignment(answer: str, gold: str) -> tuple[str, str]:
    """Drop `x =` where one side has it, or both have the same; x = 1 and y = 1 stay apart."""
    of_answer, of_gold = _ASSIGNMENT.match(answer), _ASSIGNMENT.match(gold)
    if of_answer and of_gold and of_answer[1] != of_gold[1]:
        return answer, gold
    return answer[of_answer.end() if of_answer else 0 :], gold[of_gold.end() if of_gold else 0 :]


def _compare_numbers(answer: str, gold: str) -> bool | None:
    gold_value = exact_value(gold)
    if gold_value is None:
        return None
    answer = _approximation(answer) or area_for(answer, gold) or answer
    answer_value = exact_value(answer)
    if gold_value.value.denominator != 1 and _DECIMAL_COMMA.fullmatch(answer):
        with_point = exact_value(answer.replace(",", "."))
        if with_point is not None and values_agree(with_point, gold_value):
            return True
    if answer_value is None:
        return None
    ratio = unit_ratio(answer, gold)
    if ratio is not None:
        answer_value = answer_value._replace(value=answer_value.value * ratio)
    return values_agree(answer_value, gold_value)


def _approximation(text: str) -> str | None:
    """Return the number of a text that states itself as rounded, such as `\\approx 17.1`."""
    simplified = simplify_markup(text)
    sign = _APPROXIMATE.match(simplified)
    return None if sign is None else simplified[sign.end() :]


def _compare_approximation(answer: str, gold: str) -> bool | None:
    """Compare with a gold such as `\\approx 17.1`: an answer agrees that rounds to it."""
    rounded = _approximation(gold)
    if rounded is None:
        return None
    return agrees_when_rounded(_approximation(answer) or answer, rounded)


def _compare_texts(answer: str, gold: str) -> bool | None:
    kind = classify_gold(gold)
    if kind is GoldKind.CHOICE:
        letter = choice_letter(answer)
        behind = text_behind_choice(gold)
        if letter is None and behind is not None:
            return compare_exactly(answer, behind)
        return None if letter is None else letter == choice_letter(gold)
    if kind is GoldKind.TEXT:
        behind = text_behind_choice(answer)
        return plain_text(answer) == plain_text(gold) or (behind is not None and plain_text(behind) == plain_text(gold))
    return None


def _compare_behind_choice(answer: str, gold: str) -> bool | None:
    """Compare the value of `(B) 27` with a gold that is no choice."""
    behind = None if choice_letter(gold) is not None else text_behind_choice(answer)
    return None if behind is None else compare_exactly(behind, gold)


_RULES: Final[tuple[Callable[[str, str], bool | None], ...]] = (
    _compare_numbers,
    compare_times,
    compare_bases,
    _compare_approximation,
    compare_ratios,
    compare_sets,
    compare_orderings,
)
"""Asked in this order; the first that knows decides."""


def compare_exactly(answer: str, gold: str) -> bool | None:
    """Say whether `answer` equals `gold`, or None where only computer algebra can tell.

    True: written alike, the same rational number, time, ratio, set of numbers or order, or the same words. False: two
    of a kind that differ, or other words than a gold in words. A decimal of six significant digits or more equals a
    fraction that has no finite decimal form when it lies within 1e-6 of it. `50%` equals both 50 and 0.5.
    """
    if answer == gold:
        return True
    if len(answer) > MAX_ANSWER_CHARS or len(gold) > MAX_ANSWER_CHARS:
        return None
    verdict = _first_verdict(answer, gold)
    if verdict is not None:
        return verdict
    if comparison_key(answer) == comparison_key(gold):
        return True
    stripped = _strip_assignment(simplify_markup(answer), simplify_markup(gold))
    if comparison_key(stripped[0]) == comparison_key(stripped[1]):
        return True
    verdict = _first_verdict(*stripped) if stripped != (answer, gold) else None
    if verdict is None:
        verdict = _compare_texts(answer, gold)
    return verdict if verdict is not None else _compare_behind_choice(answer, gold)


def _first_verdict(answer: str, gold: str) -> bool | None:
    return next((verdict for rule in _RULES if (verdict := rule(answer, gold)) is not None), None)
