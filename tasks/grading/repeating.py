r"""Repeating decimals: `0.\overline{3}`, `0.1\dot{6}`, `0.(142857)`, `0.1666...` and their exact values."""

import re
from fractions import Fraction
from typing import Final

_MAX_DIGITS: Final = 60

_MARKED: Final = re.compile(
    r"([+-]?)(\d{1,60})\.(\d{0,60})"
    r"(?:\\(?:overline|bar)\s*(?:\{\s*(\d{1,60})\s*\}|(\d))"  # a line above the period
    r"|\((\d{1,60})\)"  # the period in brackets
    r"|\\dot\s*\{?(\d)\}?(?:(\d{0,60})\\dot\s*\{?(\d)\}?)?)"  # a dot above its first and last digit
)
_COMBINING: Final = re.compile(r"(?:\d[\u0304\u0305]){1,60}$")
_OPEN_END: Final = re.compile(r"(?:\.{2,6}|\u2026|\\(?:l|c)?dots)[\s$.*]*$")
_DOTS: Final = re.compile(r"([+-]?)(\d{1,60})\.(\d{2,60})\s*(?:\.{2,6}|\u2026|\\(?:l|c)?dots)")
_PERIOD: Final = re.compile(r"(\d{2,20}?)\1+$|(\d)\2\2+$")
"""What shows a period before dots: a block of two digits or more twice, or one digit three times."""


def repeating_value(text: str) -> Fraction | None:
    """Return the value of a repeating decimal, or None when `text` is none."""
    if "." not in text or len(text) > 3 * _MAX_DIGITS:
        return None
    if match := _COMBINING.search(text):
        digits = re.sub(r"\D", "", match.group())
        text = rf"{text[: match.start()]}\overline{{{digits}}}"
    if match := _MARKED.fullmatch(text):
        sign, whole, fixed, line, digit, bracket, first, middle, last = match.groups()
        period = line or digit or bracket or f"{first}{middle or ''}{last or ''}"
        return _value(sign, whole, fixed, period)
    if match := _DOTS.fullmatch(text):
        period = _PERIOD.search(match[3])
        if period is not None:
            return _value(match[1], match[2], match[3][: period.start()], period[1] or period[2])
    return None


def has_open_end(text: str) -> bool:
    """Say whether dots at the end say that digits go on."""
    return _OPEN_END.search(text) is not None


def _value(sign: str, whole: str, fixed: str, period: str) -> Fraction:
    shift = 10 ** len(fixed)
    value = Fraction(int(whole + fixed), shift) + Fraction(int(period), shift * (10 ** len(period) - 1))
    return -value if sign == "-" else value
