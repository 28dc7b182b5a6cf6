"""The fast path: comparisons that need no computer algebra, decided only where there is no doubt.

Rationals are compared exactly, texts and choice letters as normalised strings; everything else is left open (None).
"""

import re
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from tasks.grading.markup import MAX_ANSWER_CHARS, comparison_key, simplify_markup

_MAX_DIGITS: Final = 400
_MAX_POWER_BITS: Final = 65_536
_RELATIVE_TOLERANCE: Final = Fraction(1, 10**6)
"""How far a decimal may lie from a value that no decimal can express, such as 0.333333 from 1/3."""

_NUMBER: Final = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+(?!\d)|\d{1,400})(?:\.\d{0,400})?"
_PLAIN: Final = re.compile(r"[+-]?\d{1,18}")
_CURRENCY: Final = re.compile(r"^([+-]?)\s*(?:[€£¥₹]|(?:USD|EUR|GBP|Rs\.?|US)(?![A-Za-z]))\s*(?=[\d.])")
_UNIT: Final = re.compile(
    r"(?:\s*\\text\s*\{[^{}\d]*\}(?:\^\{?\d\}?)?"
    r"|\s*(?:mm|cm|km|m|ft|yd|in|kg|g|mg|lb|lbs|oz|ml|mL|L|hr|hrs|min|mph|USD|cents?|¢|颗|个|元|美元)(?:\^\{?[23]\}?)?"
    r"|\s+(?:[A-Za-z][a-z]{2,}|of|in|an?|per)(?:[ -](?:[A-Za-z]?[a-z]{2,}|a)){0,4}(?:\^\{?[23]\}?)?)$"
)
_NOT_A_UNIT: Final = re.compile(r"\b(?:and|or|pi|sqrt|sin|cos|tan|log|ln|exp|inf|infty|infinity|mod|times|percent)\b")
_PERCENT: Final = re.compile(r"\s*(?:%|(?:\\text\s*\{\s*)?(?:percent|percentage|pct)\b(?:\s*\})?)\s*$")
_SIGNED_NUMBER: Final = re.compile(rf"([+-]?)\s*({_NUMBER})")
_FRACTION: Final = re.compile(
    rf"([+-]?)\s*(\d{{0,9}}) ?\\frac\s*(?:\{{\s*([+-]?{_NUMBER})\s*\}}|(\d))\s*(?:\{{\s*([+-]?{_NUMBER})\s*\}}|(\d))"
)
_RATIO: Final = re.compile(rf"\(?([+-]?)\s*({_NUMBER})\s*/\s*(-?)({_NUMBER})\)?")
_MIXED: Final = re.compile(r"([+-]?)(\d{1,9}) (\d{1,9})/(\d{1,9})")
_POWER: Final = re.compile(
    rf"([+-]?)(?:({_NUMBER})\s*(?:\\times|\\cdot|\*|x)\s*)?(\d{{1,9}})\s*\^\s*(?:\{{\s*([+-]?\d{{1,6}})\s*\}}|(\d))"
)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z](?:_\{?\w\}?)?)\s*=\s*(?=[^=\s])")
_BASE: Final = re.compile(r"([0-9A-Za-z]+)_(?:\{(?:\\text)?\{?(\d{1,2})\}?\}|(\d{1,2}))")
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d+,\d+")


class GoldKind(StrEnum):
    """How a gold is compared."""

    NUMBER = "number"
    """A rational number, exactly."""
    CHOICE = "choice"
    """One letter, as of a multiple choice."""
    TEXT = "text"
    """Words, as normalised text."""
    SYMBOLIC = "symbolic"
    """Mathematics, by computer algebra."""


class ExactValue(NamedTuple):
    """A rational number and how it was written."""

    value: Fraction
    """The number; of `50%` the 50."""
    is_percent: bool
    """Whether a percent sign followed."""
    num_decimals: int | None
    """Significant digits where it was written with a decimal point, else None."""


def _rational(digits: str) -> Fraction:
    return Fraction(digits.replace(",", "").replace(" ", "").rstrip("."))


def _sign(sign: str) -> int:
    return -1 if sign == "-" else 1


def _fraction_value(match: re.Match[str]) -> Fraction | None:
    sign, whole, numerator, short_numerator, denominator, short_denominator = match.groups()
    above, below = _rational(numerator or short_numerator), _rational(denominator or short_denominator)
    if below == 0 or (whole and not 0 <= above < below):
        return None  # 3\frac{5}{2} may be a product: left to algebra
    return _sign(sign) * (Fraction(int(whole or 0)) + above / below)


def _power_value(match: re.Match[str]) -> Fraction | None:
    sign, factor, base_digits, exponent_digits, short_exponent = match.groups()
    base, exponent = int(base_digits), int(exponent_digits or short_exponent)
    if base == 0 or abs(exponent) * base.bit_length() > _MAX_POWER_BITS:
        return None
    return _sign(sign) * (_rational(factor) if factor else 1) * Fraction(base) ** exponent


def _bare_value(text: str) -> tuple[Fraction, int | None] | None:
    """Return the number that the whole text is, and its count of digits where it has a decimal point."""
    if match := _SIGNED_NUMBER.fullmatch(text):
        digits = match[2]
        num_decimals = sum(map(str.isdigit, digits.lstrip("0."))) if "." in digits else None
        return _sign(match[1]) * _rational(digits), num_decimals
    value: Fraction | None = None
    if match := _FRACTION.fullmatch(text):
        value = _fraction_value(match)
    elif match := _RATIO.fullmatch(text):
        below = _rational(match[4]) * _sign(match[3])
        value = _sign(match[1]) * _rational(match[2]) / below if below else None
    elif match := _MIXED.fullmatch(text):
        below = int(match[4])
        value = _sign(match[1]) * (int(match[2]) + Fraction(int(match[3]), below)) if int(match[3]) < below else None
    elif match := _POWER.fullmatch(text):
        value = _power_value(match)
    return None if value is None else (value, None)


@lru_cache(maxsize=8192)
def exact_value(text: str) -> ExactValue | None:
    """Return the rational number that `text` states (units and currency put aside), or None when it is no such thing.

    At most 400 digits and 65,536 bits of a power are read; beyond them the text is left to the slow path's limits.
    """
    if _PLAIN.fullmatch(text):
        return ExactValue(Fraction(int(text)), is_percent=False, num_decimals=None)
    if len(text) > _MAX_DIGITS:
        return None
    text = _CURRENCY.sub(r"\1", simplify_markup(text))
    percent = _PERCENT.search(text)
    if percent:
        text = text[: percent.start()]
    bare = _bare_value(text)
    if bare is None and not percent and (unit := _UNIT.search(text)) and not _NOT_A_UNIT.search(unit.group()):
        stem = text[: unit.start()].rstrip()
        bare = None if stem.endswith(".") else _bare_value(stem)  # "3. Count" numbers a step
    return None if bare is None else ExactValue(bare[0], is_percent=percent is not None, num_decimals=bare[1])


def _terminates(value: Fraction) -> bool:
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def _values_agree(answer: ExactValue, gold: ExactValue) -> bool:
    if answer.value == gold.value:
        return True
    if answer.is_percent != gold.is_percent:
        percent, plain = (answer, gold) if answer.is_percent else (gold, answer)
        return percent.value / 100 == plain.value
    for decimal, other in ((answer, gold), (gold, answer)):
        if decimal.num_decimals is not None and decimal.num_decimals >= 6 and not _terminates(other.value):
            return abs(decimal.value - other.value) <= _RELATIVE_TOLERANCE * abs(other.value)
    return False


# ---------------------------------------------------------------------------------------------------- texts

_TEXT_COMMAND: Final = re.compile(r"\\text\s*\{([^{}]*)\}")
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_NOT_TEXT: Final = re.compile(r"[\\^_=<>{}+*/|]|\b(?:sqrt|sinh?|cosh?|tanh?|log|infinity|infty)\b")
_SHORT_WORDS: Final = frozenset({"yes", "no", "odd", "none of these"})
_CHOICE: Final = re.compile(r"\(?([A-Za-z])\)?")
_CHOICE_WITH_TEXT: Final = re.compile(r"(?:\(([A-Za-z])\)\s*|([A-Za-z])(?:\)\s*|[.:]\s+))\S.{0,300}")
_ARTICLE: Final = re.compile(r"^(?:the|an?)\s+")


@lru_cache(maxsize=8192)
def plain_text(text: str) -> str:
    """Return the words of an answer: `\\text{}` opened, case folded, white space and outer punctuation dropped."""
    text = _TEXT_COMMAND.sub(r"\1", simplify_markup(text)).replace("{", "").replace("}", "")
    return _ARTICLE.sub("", " ".join(text.casefold().split()).strip(" .,;:!?\"'`()[]"))


def choice_letter(text: str) -> str | None:
    """Return the upper-case letter of `C`, `(C)`, `\\text{(C)}`, `C. 12` or `(C) Cecile`; None for anything else."""
    text = _TEXT_COMMAND.sub(r"\1", simplify_markup(text)).strip()
    match = _CHOICE.fullmatch(text) or _CHOICE_WITH_TEXT.fullmatch(text)
    return None if match is None else next(group for group in match.groups() if group).upper()


@lru_cache(maxsize=8192)
def classify_gold(gold: str) -> GoldKind:
    """Say how answers are compared with `gold`, by its form alone."""
    if exact_value(gold) is not None:
        return GoldKind.NUMBER
    if choice_letter(gold) is not None:
        return GoldKind.CHOICE
    simplified = simplify_markup(gold)
    opened = _TEXT_COMMAND.sub(r"\1", simplified)
    has_words = _WORD.search(opened) or plain_text(gold) in _SHORT_WORDS or _TEXT_COMMAND.fullmatch(simplified)
    return GoldKind.TEXT if has_words and not _NOT_TEXT.search(opened) else GoldKind.SYMBOLIC


# ---------------------------------------------------------------------------------------------- comparison


def _strip_assignment(answer: str, gold: str) -> tuple[str, str]:
    """Drop `x =` where one side has it, or both have the same; x = 1 and y = 1 stay apart."""
    of_answer, of_gold = _ASSIGNMENT.match(answer), _ASSIGNMENT.match(gold)
    if of_answer and of_gold and of_answer[1] != of_gold[1]:
        return answer, gold
    return answer[of_answer.end() if of_answer else 0 :], gold[of_gold.end() if of_gold else 0 :]


def _compare_bases(answer: str, gold: str) -> bool | None:
    """Compare `52_8` with `52_8`, `52` or `52_9`: digits and, where both name one, the base must agree."""
    of_answer, of_gold = _BASE.fullmatch(comparison_key(answer)), _BASE.fullmatch(comparison_key(gold))
    if of_gold is None:
        return None
    base = of_gold[2] or of_gold[3]
    if of_answer is not None:
        return (of_answer[1], of_answer[2] or of_answer[3]) == (of_gold[1], base)
    return comparison_key(answer) == of_gold[1] if exact_value(answer) is not None else None


def _compare_numbers(answer: str, gold: str) -> bool | None:
    gold_value, answer_value = exact_value(gold), exact_value(answer)
    if gold_value is None:
        return None
    if gold_value.value.denominator != 1 and _DECIMAL_COMMA.fullmatch(answer):
        with_point = exact_value(answer.replace(",", "."))
        if with_point is not None and _values_agree(with_point, gold_value):
            return True
    return None if answer_value is None else _values_agree(answer_value, gold_value)


def compare_exactly(answer: str, gold: str) -> bool | None:
    """Say whether `answer` equals `gold`, or None where only computer algebra can tell.

    True: written alike, the same rational number, or the same words. False: two different rationals, or other words
    than a gold in words. A decimal of six significant digits or more equals a fraction that has no finite decimal
    form when it lies within 1e-6 of it. `50%` equals both 50 and 0.5.
    """
    if answer == gold:
        return True
    if len(answer) > MAX_ANSWER_CHARS or len(gold) > MAX_ANSWER_CHARS:
        return None
    verdict = _compare_numbers(answer, gold)
    if verdict is not None:
        return verdict
    if comparison_key(answer) == comparison_key(gold):
        return True
    stripped = _strip_assignment(simplify_markup(answer), simplify_markup(gold))
    if comparison_key(stripped[0]) == comparison_key(stripped[1]):
        return True
    verdict = _compare_numbers(*stripped)
    if verdict is None:
        verdict = _compare_bases(answer, gold)
    return verdict if verdict is not None else _compare_texts(answer, gold)


def _compare_texts(answer: str, gold: str) -> bool | None:
    kind = classify_gold(gold)
    if kind is GoldKind.CHOICE:
        letter = choice_letter(answer)
        return None if letter is None else letter == choice_letter(gold)
    if kind is GoldKind.TEXT:
        return plain_text(answer) == plain_text(gold) or (
            choice_letter(answer) is not None and choice_letter(answer) == choice_letter(gold)
        )
    return None
