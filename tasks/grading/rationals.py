"""Rational numbers as answers state them, read exactly: units and currency put aside, scale words applied."""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from tasks.grading.markup import simplify_markup
from tasks.grading.repeating import has_open_end, repeating_value
from tasks.grading.scales import apply_scale, read_scale
from tasks.grading.times import has_period

_MAX_DIGITS: Final = 400
_MAX_POWER_BITS: Final = 65_536
_RELATIVE_TOLERANCE: Final = Fraction(1, 10**6)
"""How far a decimal may lie from a value that no decimal can express, such as 0.333333 from 1/3."""

_NUMBER: Final = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+(?!\d)|\d{1,400})(?:\.\d{0,400})?"
_PLAIN: Final = re.compile(r"[+-]?\d{1,18}")
_CURRENCY: Final = re.compile(r"^([+-]?)\s*(?:[€£¥₹₽₩]|(?:USD|EUR|GBP|CHF|Rs\.?|US)(?![A-Za-z]))\s*([+-]?)(?=[\d.])")
_MONEY: Final = re.compile(r"[$€£¥₹₽₩]")
_UNIT: Final = re.compile(
    r"(?:\s*\\text\s*\{[^{}\d:]*\}(?:\^\{?\d\}?)?"
    r"|\s*(?:mm|cm|km|m|ft|yd|in|kg|g|mg|lb|lbs|oz|ml|mL|L|hr|hrs|min|mph"
    r"|US|USD|EUR|GBP|CHF|JPY|CNY|RMB|INR|Rs\.?|euros?|cents?|[€£¥₹₽₩¢円颗个元]|美元)(?:\^\{?[23]\}?)?"
    r"|\s+(?:[A-Za-z][a-z]{2,}|of|in|an?|per)(?:[ -](?:[A-Za-z]?[a-z]{2,}|a)){0,4}(?:\^\{?[23]\}?)?)$"
)
_NOT_A_UNIT: Final = re.compile(
    r"\b(?:and|or|pi|sqrt|sin|cos|tan|log|ln|exp|inf|infty|infinity|mod|modulo|times(?=\s+\S)|percent|plus|minus|over"
    r"|choose|divided|half|remainder|below zero|in (?:base|binary|octal|hex|hexadecimal)|factorial|hundred|thousand"
    r"|(?:m|b|tr|quadr)illion)s?\b|(?<![a-z] )\b(?:squared|cubed)\b"
)
"""Words behind a number that change its value."""
_WHOLE_TEXT: Final = re.compile(r"\\text\s*\{([^{}]*)\}")
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


class ExactValue(NamedTuple):
    """A rational number and how it was written."""

    value: Fraction
    """The number; of `50%` the 50."""
    is_percent: bool
    """Whether a percent sign followed."""
    num_decimals: int | None
    """Significant digits where it was written with a decimal point, else None."""
    alternative: Fraction | None = None
    """A second reading: of `2 dozen` the 2."""


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
    else:
        value = repeating_value(text)
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
    if has_open_end(text) and (repeating := repeating_value(text.strip(" $*"))) is not None:
        return ExactValue(repeating, is_percent=False, num_decimals=None)
    is_money = _MONEY.search(text) is not None
    text = simplify_markup(text)
    if whole := _WHOLE_TEXT.fullmatch(text):
        text = whole[1].strip()
    text = _CURRENCY.sub(r"\1\2", text)
    percent = _PERCENT.search(text)
    if percent:
        text = text[: percent.start()]
    bare = _bare_value(text)
    if bare is not None:
        return ExactValue(bare[0], is_percent=percent is not None, num_decimals=bare[1])
    return None if percent else _value_with_words(text, is_money=is_money)


def _value_with_words(text: str, *, is_money: bool) -> ExactValue | None:
    """Return the value of a number with a unit or scale words behind it."""
    if has_period(text):
        return None
    scaled = read_scale(_WHOLE_TEXT.sub(r" \1", text), is_money=is_money)
    if scaled is not None:
        bare = _bare_value(scaled.number.strip())
        value = None if bare is None or not _is_unit(scaled.rest) else apply_scale(bare[0], scaled)
        if bare is None or value is None:
            return None
        alternative = bare[0] if scaled.is_also_unit else None
        return ExactValue(value, is_percent=False, num_decimals=bare[1], alternative=alternative)
    unit = _UNIT.search(text)
    if unit is None or _NOT_A_UNIT.search(unit.group()):
        return None
    stem = text[: unit.start()].rstrip()
    bare = None if stem.endswith(".") else _bare_value(stem)  # "3. Count" numbers a step
    return None if bare is None else ExactValue(bare[0], is_percent=False, num_decimals=bare[1])


def _is_unit(text: str) -> bool:
    return not text.strip() or (_UNIT.fullmatch(text) is not None and not _NOT_A_UNIT.search(text))


def _terminates(value: Fraction) -> bool:
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def values_agree(answer: ExactValue, gold: ExactValue) -> bool:
    """Say whether two numbers are equal, each in any of its readings."""
    if answer.value == gold.value or answer.alternative == gold.value or gold.alternative == answer.value:
        return True
    if answer.is_percent != gold.is_percent:
        percent, plain = (answer, gold) if answer.is_percent else (gold, answer)
        return percent.value / 100 == plain.value
    for decimal, other in ((answer, gold), (gold, answer)):
        if decimal.num_decimals is not None and decimal.num_decimals >= 6 and not _terminates(other.value):
            return abs(decimal.value - other.value) <= _RELATIVE_TOLERANCE * abs(other.value)
    return False
