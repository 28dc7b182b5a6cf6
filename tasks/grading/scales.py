"""Words that change a number's value: `2.5 million`, `7 tenths`, `5 factorial`, `3 squared`.

A unit may be left out of an answer; such a word may not.
"""

import math
import re
from fractions import Fraction
from typing import Final, NamedTuple

_POWERS: Final = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "quadrillion": 15}
_LETTERS: Final = {"k": 3, "m": 6, "mn": 6, "b": 9, "bn": 9, "t": 12, "tn": 12}
"""Behind an amount of money only: `2k` is a product and `5 m` a length."""
_PARTS: Final = {
    "third": 3,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "seventh": 7,
    "eighth": 8,
    "ninth": 9,
    "tenth": 10,
    "eleventh": 11,
    "twelfth": 12,
    "twentieth": 20,
    "hundredth": 100,
    "thousandth": 1000,
    "millionth": 10**6,
    "billionth": 10**9,
}
_COUNTS: Final = {"dozen": Fraction(12), "score": Fraction(20), "quarter": Fraction(1, 4)}
"""Units as well, as in "how many dozens": both readings of `2 dozen` are credited."""
_MAX_FACTORIAL: Final = 150
_MAX_BITS: Final = 4096

_WORDS: Final = "|".join(sorted([*_POWERS, *_PARTS, *_COUNTS], key=len, reverse=True))
_SCALE: Final = re.compile(rf"\s*-?\s*\b({_WORDS})s?\b(?:\s+of\b)?", re.IGNORECASE)
_HALVES: Final = re.compile(r"\s*\bhalves\b", re.IGNORECASE)
_LETTER: Final = re.compile(r"\s?(k|mn|m|bn|b|tn|t)\b", re.IGNORECASE)
_FUNCTION: Final = re.compile(r"\s*\b(factorial|squared|cubed)", re.IGNORECASE)
_FIRST_WORD: Final = re.compile(r"(?<![\\A-Za-z])[A-Za-z]")


class Scaled(NamedTuple):
    """A number's text, what its words do to it, and what stands behind them."""

    number: str
    """The text before the words."""
    factor: Fraction
    """What the words multiply by."""
    function: str
    """`factorial`, `squared`, `cubed` or nothing."""
    is_also_unit: bool
    """Whether the number without the factor is a reading too, as of `2 dozen`."""
    rest: str
    """The text behind the words: a unit, or nothing."""


def read_scale(text: str, *, is_money: bool = False) -> Scaled | None:
    """Split `2.5 million dollars` into 2.5, 1,000,000 and `dollars`; None when no such word follows a number."""
    first = _FIRST_WORD.search(text)
    if first is None or first.start() == 0:
        return None
    start = len(text[: first.start()].rstrip().rstrip("-").rstrip())
    number, position, factor, is_also_unit, function = text[:start], start, Fraction(1), False, ""
    while match := _SCALE.match(text, position):
        word = match[1].lower()
        factor *= _factor(word)
        is_also_unit = is_also_unit or word in _COUNTS
        position = match.end()
    if position == start:
        if match := _HALVES.match(text, position):
            factor = Fraction(1, 2)
        elif (match := _FUNCTION.match(text, position)) and not text[match.end() :].strip():
            function = match[1].lower()  # 25 squared meters are 25
        elif is_money and (match := _LETTER.match(text, position)):
            factor = Fraction(10 ** _LETTERS[match[1].lower()])
        if match is None:
            return None
        position = match.end()
    return Scaled(number, factor, function, is_also_unit, text[position:])


def _factor(word: str) -> Fraction:
    if word in _POWERS:
        return Fraction(10 ** _POWERS[word])
    return _COUNTS[word] if word in _COUNTS else Fraction(1, _PARTS[word])


def apply_scale(value: Fraction, scaled: Scaled) -> Fraction | None:
    """Return the scaled value, or None where it cannot be written out or is undefined."""
    if scaled.function == "factorial":
        is_small = value.denominator == 1 and 0 <= value <= _MAX_FACTORIAL
        return Fraction(math.factorial(int(value))) if is_small else None
    if scaled.function:
        if value.numerator.bit_length() + value.denominator.bit_length() > _MAX_BITS:
            return None
        return value ** (2 if scaled.function == "squared" else 3)
    return value * scaled.factor
