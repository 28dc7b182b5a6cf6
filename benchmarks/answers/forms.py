"""Kinds of rewriting, and how golds are read and written by their rules."""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Final, NamedTuple

Rule = Callable[[str], list[str]]
"""Returns the answers that a gold is rewritten into; none where the rule does not fit."""


class Kind(NamedTuple):
    """One rule over one source of golds."""

    name: str
    """As the table shows it."""
    is_right: bool
    """Whether the answers are right by construction."""
    rule: Rule
    """What makes the answers."""
    source: str
    """math, gsm8k, cases, or the name of golds that are drawn."""
    is_completion: bool
    """Whether the rule writes whole completions; else its answers are put into a box."""


class Kinds(list[Kind]):
    """The kinds of one module, in the order of the table."""

    def __init__(self, *, is_right: bool) -> None:
        super().__init__()
        self._is_right = is_right

    def add(self, name: str, source: str, *, is_completion: bool = False) -> Callable[[Rule], Rule]:
        """Return the decorator that adds a rule."""

        def append(rule: Rule) -> Rule:
            self.append(Kind(name, self._is_right, rule, source, is_completion))
            return rule

        return append


_INTEGER: Final = re.compile(r"-?\d+")
_FRACTION: Final = re.compile(r"(-?)\\d?frac\{(\d+)\}\{(\d+)\}")
TUPLE: Final = re.compile(r"\(([^()\\]+(?:,[^()\\]+)+)\)")
INTERVAL: Final = re.compile(r"([(\[])\s*([^,()\[\]]+),\s*([^,()\[\]]+)([)\]])")
BASED: Final = re.compile(r"(\d+)_\{?(\d)\}?")
BASE_NAMES: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_SUM: Final = re.compile(r"[+-]?[^+\-(){}=<>,]+(?:[+-][^+\-(){}=<>,]+)+")


def read_integer(gold: str) -> int | None:
    """Return the gold as an integer of at most 15 digits; None where it is none."""
    return int(gold) if _INTEGER.fullmatch(gold) and len(gold) < 16 else None


def read_fraction(gold: str) -> Fraction | None:
    """Return the gold `\\frac{a}{b}` as a number; None where it is none."""
    match = _FRACTION.fullmatch(gold)
    if match is None or int(match[3]) == 0:
        return None
    return Fraction(int(match[1] + match[2]), int(match[3]))


def write_fraction(value: Fraction) -> str:
    """Return a number as `\\frac{a}{b}`."""
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def split_terms(gold: str) -> list[str]:
    """Return the top-level terms of a sum such as `x^3+3x-6`, with their signs."""
    if not _SUM.fullmatch(gold.replace(" ", "")) or "\\pm" in gold:
        return []
    return [term for term in re.findall(r"[+-]?[^+-]+", gold.replace(" ", "")) if term]


def with_integer(write: Callable[[int], list[str]]) -> Rule:
    """Return a rule over golds that are integers."""
    return lambda gold: write(number) if (number := read_integer(gold)) is not None else []


def with_fraction(write: Callable[[Fraction], list[str]]) -> Rule:
    """Return a rule over golds that are fractions and no integers."""
    return lambda gold: write(value) if (value := read_fraction(gold)) is not None and value.denominator > 1 else []


def write_inequality(gold: str, name: str = "x") -> str | None:
    """Return an interval as an inequality; None where the gold is no interval."""
    match = INTERVAL.fullmatch(gold.replace(r"\left", "").replace(r"\right", ""))
    if match is None:
        return None
    low, high = match[2].strip(), match[3].strip()
    above, below = "<" if match[1] == "(" else r"\le", "<" if match[4] == ")" else r"\le"
    if low == r"-\infty":
        return f"{name} {below} {high}"
    if high == r"\infty":
        return f"{name} > {low}" if match[1] == "(" else rf"{name} \ge {low}"
    return f"{low} {above} {name} {below} {high}"


def as_inequalities(gold: str) -> list[str]:
    """Return a union of intervals, or an unbounded one, as inequalities and by a set builder."""
    if r"\infty" not in gold and r"\cup" not in gold:
        return []
    parts = [write_inequality(part.strip()) for part in gold.split(r"\cup")]
    texts = [part for part in parts if part is not None]
    if len(texts) < len(parts):
        return []
    joined = r" \text{ or } ".join(texts)
    return [joined, rf"\{{x \mid {joined}\}}", rf"x \in {gold}"]


def list_members(gold: str) -> list[str]:
    """Return the members of a list such as `3, 5, 7`; none of a pair or a number."""
    inner = gold.removeprefix(r"\{").removesuffix(r"\}")
    members = [member.strip() for member in inner.split(",")]
    is_list = len(members) > 1 and all(members) and not re.search(r"[()\[\]=<>]|\\[,!]|\\in", gold)
    is_number = re.fullmatch(r"\d{1,3}(?:,\d{3})+", gold.replace(" ", "").replace("\\!", "")) is not None
    return members if is_list and not is_number else []


def read_time(gold: str) -> tuple[int, int, str]:
    """Return hour, minute and AM or PM of a drawn time."""
    hour, minute, period = re.split(r"[: ]", gold)
    return int(hour), int(minute), period


def read_ratio(gold: str) -> list[int]:
    """Return the members of a drawn ratio."""
    return [int(member) for member in gold.split(":")]
