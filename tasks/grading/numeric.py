r"""Certain differences between answers: numbers that lie apart, or a number against a pair, an interval or a matrix.

Closed forms such as `\frac{3\sqrt{13}}{2}+\pi` are evaluated in double precision by a parser of our own (never eval).
It decides only "different": values that agree within its tolerance are left to computer algebra.
"""

import math
import re
from functools import lru_cache
from typing import Final, Literal

from tasks.grading.markup import simplify_markup
from tasks.grading.rationals import exact_value

_APART: Final = 1e-4
"""Relative distance from which two values differ for sure; the rounding of a few dozen operations stays below 1e-12."""
_MAX_TOKENS: Final = 80
_TOKEN: Final = re.compile(
    r"\s*(\d{1,15}(?:\.\d{1,15})?|\\sqrt|\\frac|\\pi(?![a-zA-Z])|\\cdot(?![a-zA-Z])|\\times(?![a-zA-Z])|[-+*/^(){}\[\]])"
)
_MEMBERSHIP: Final = re.compile(r"[A-Za-z]\s*\\in(?![a-zA-Z])\s*")
_COLLECTION: Final = re.compile(r"(?:\(|\[|\\\{)(.+)(?:\)|\]|\\\})", re.DOTALL)
_MATRIX: Final = re.compile(r"\\begin\{[a-zA-Z]{0,1}matrix\}.*(?:&|\\\\).*\\end\{[a-zA-Z]{0,1}matrix\}", re.DOTALL)
_KNOWN: Final = re.compile(r"\\(?:infty|sqrt|frac|pi|cup|cdot)(?![a-zA-Z])")
_UNCERTAIN: Final = re.compile(r"[=<>]|\\[a-zA-Z]|[A-Za-z]{3}|\d,\d{3}(?!\d)")

_DECIMALS: Final = re.compile(r"\.(\d+)")

_NUMERIC_COMMAND: Final = re.compile(
    r"\\(?:sqrt|frac|pi|cdot|times|ln|log|exp|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|binom)(?![a-zA-Z])"
)

Shape = Literal["number", "collection", "matrix"]


class _UnknownFormError(Exception):
    """The text is no closed form that this parser reads."""


class _Parser:
    """Recursive descent over the symbols of one expression; a few dozen symbols at most."""

    def __init__(self, symbols: list[str]) -> None:
        self._symbols = symbols
        self._position = 0

    def parse(self) -> float:
        value = self._sum()
        if self._position != len(self._symbols):
            raise _UnknownFormError
        return value

    def _peek(self) -> str:
        return self._symbols[self._position] if self._position < len(self._symbols) else ""

    def _take(self, *expected: str) -> str:
        symbol = self._peek()
        if expected and symbol not in expected:
            raise _UnknownFormError
        self._position += 1
        return symbol

    def _sum(self) -> float:
        sign = -1.0 if self._peek() in ("+", "-") and self._take() == "-" else 1.0
        value = sign * self._product()
        while self._peek() in ("+", "-"):
            value += self._product() if self._take() == "+" else -self._product()
        return value

    def _product(self) -> float:
        starts_with_number = self._peek()[:1].isdigit()
        value = self._power()
        while True:
            symbol = self._peek()
            if symbol in ("*", r"\cdot", r"\times"):
                self._take()
                value *= self._power()
            elif symbol == "/":
                self._take()
                value /= self._power()
            elif symbol in (r"\sqrt", r"\pi", "(") or (symbol == r"\frac" and not starts_with_number):
                value *= self._power()
            else:
                return value

    def _power(self) -> float:
        base = self._atom()
        if self._peek() != "^":
            return base
        self._take()
        exponent = self._argument() if self._peek() == "{" or self._peek()[:1].isdigit() else self._fail()
        if abs(exponent) > 64 or (base < 0 and not exponent.is_integer()):
            raise _UnknownFormError
        return base**exponent

    @staticmethod
    def _fail() -> float:
        raise _UnknownFormError

    def _argument(self) -> float:
        """Read `{...}`, or the one digit that LaTeX takes where there are no braces."""
        if self._peek() == "{":
            return self._bracketed("{", "}")
        symbol = self._take()
        if not symbol.isdigit():
            raise _UnknownFormError
        if len(symbol) > 1:
            self._position -= 1
            self._symbols[self._position] = symbol[1:]
        return float(symbol[0])

    def _bracketed(self, opening: str, closing: str) -> float:
        self._take(opening)
        value = self._sum()
        self._take(closing)
        return value

    def _atom(self) -> float:
        symbol = self._peek()
        if symbol in ("(", "{"):
            return self._bracketed(symbol, ")" if symbol == "(" else "}")
        self._take()
        if symbol[:1].isdigit():
            return float(symbol)
        if symbol == r"\pi":
            return math.pi
        if symbol == r"\frac":
            return self._argument() / self._argument()
        if symbol == r"\sqrt":
            degree = self._bracketed("[", "]") if self._peek() == "[" else 2.0
            radicand = self._argument()
            if radicand >= 0 and degree > 0:
                return radicand ** (1 / degree)
        raise _UnknownFormError


@lru_cache(maxsize=8192)
def closed_form_value(text: str) -> float | None:
    """Return the value of a closed form of numbers, roots, fractions, powers and pi; None for everything else."""
    exact = exact_value(text)
    if exact is not None:
        return None if exact.is_percent else _as_float(exact.value.numerator, exact.value.denominator)
    simplified = simplify_markup(text)
    symbols: list[str] = []
    position = 0
    while position < len(simplified) and len(symbols) <= _MAX_TOKENS:
        match = _TOKEN.match(simplified, position)
        if match is None:
            return None
        symbols.append(match[1])
        position = match.end()
    if not symbols or len(symbols) > _MAX_TOKENS:
        return None
    try:
        value = _Parser(symbols).parse()
    except (_UnknownFormError, ZeroDivisionError, OverflowError):
        return None
    return value if math.isfinite(value) else None


@lru_cache(maxsize=8192)
def is_numeric(gold: str) -> bool:
    r"""Say whether a gold is a number: a rational, or a closed form such as `3\sqrt{13}`, `\ln 2` or `6-5i`."""
    if exact_value(gold) is not None or closed_form_value(gold) is not None:
        return True
    rest = _NUMERIC_COMMAND.sub(" ", simplify_markup(gold))
    return bool(re.search(r"\d", rest)) and not re.search(r"[A-DF-Za-df-hj-z\\=<>,]", rest)


def agrees_when_rounded(answer: str, rounded: str) -> bool | None:
    """Say whether `answer` rounds to the decimal number `rounded`, at its last place; None where one has no value."""
    of_rounded, of_answer = exact_value(rounded), closed_form_value(answer)
    if of_rounded is None or of_answer is None:
        return None
    point = _DECIMALS.search(simplify_markup(rounded))
    unit = 10.0 ** -len(point[1]) if point else 1.0
    return abs(of_answer - float(of_rounded.value)) <= unit / 2 * (1 + 1e-9)


def _as_float(numerator: int, denominator: int) -> float | None:
    try:
        return numerator / denominator
    except OverflowError:
        return None


@lru_cache(maxsize=8192)
def shape_of(text: str) -> Shape | None:
    """Say whether an answer is one number, a collection of at least two members or a matrix; None where unsure."""
    if closed_form_value(text) is not None:
        return "number"
    simplified = _MEMBERSHIP.sub("", simplify_markup(text), count=1).strip()
    if _MATRIX.fullmatch(simplified):
        return "matrix"
    match = _COLLECTION.fullmatch(simplified)
    if match is None or _UNCERTAIN.search(_KNOWN.sub(" ", simplified)):
        return None
    parts = {"".join(part.split()) for part in match[1].split(",")}
    return "collection" if len(parts) > 1 and all(parts) else None


def differ_for_sure(answer: str, gold: str) -> bool:
    """Say whether two answers are certainly different: by value, or a number against a collection or a matrix."""
    of_answer, of_gold = closed_form_value(answer), closed_form_value(gold)
    if of_answer is not None and of_gold is not None:
        return abs(of_answer - of_gold) > _APART * max(abs(of_answer), abs(of_gold), _APART)
    shapes = (shape_of(answer), shape_of(gold))
    return None not in shapes and "number" in shapes and shapes[0] != shapes[1]
