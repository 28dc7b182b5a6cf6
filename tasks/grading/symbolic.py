r"""Comparison by math-verify with settings under which its known false verdicts do not occur.

Runs inside a grading process only: parsing and comparing may hang or eat memory, and the timeouts of math-verify itself
(signal.alarm) fail outside the main thread and turn every failure into "wrong". Text is read by math-verify's LaTeX
parser alone; its plain-expression extraction evaluates Python and is never used.
"""

import logging
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tasks.grading.exact import GoldKind, classify_gold
from tasks.grading.jobs import Reply
from tasks.grading.markup import simplify_markup

if TYPE_CHECKING:
    from math_verify import LatexExtractionConfig

_RELATIVE_TOLERANCE: Final = 1e-6
"""math-verify rounds floats to six decimals, so that 1e-7 equals 2e-7; numbers must agree relatively as well."""

_APPROXIMATION: Final = re.compile(r"\\(?:approx|simeq|doteq)(?![a-zA-Z])|\u2248")
_MEMBERSHIP: Final = re.compile(r"^[A-Za-z](?:_\{?\w\}?)?\s*\\in(?![a-zA-Z])")
_SYMBOL: Final = re.compile(r"[\\A-Za-z_ ]{1,20}")


def warm_up() -> None:
    """Import math-verify and read a few expressions, so that processes forked from this one start warm."""
    for answer, gold in (
        (r"\frac{\sqrt{3}}{2}+1", r"1+\frac{\sqrt3}{2}"),
        ("(1,2]", r"1<x\le 2"),
        ("x^2-1", r"\{1,2\}"),
    ):
        compare_symbolically(answer, gold)


@lru_cache(maxsize=1)
def _latex_config() -> "tuple[LatexExtractionConfig]":
    from math_verify import LatexExtractionConfig

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    logging.getLogger("latex2sympy2_extended").setLevel(logging.CRITICAL)
    return (LatexExtractionConfig(try_extract_without_anchor=False, boxed_match_priority=0),)


@lru_cache(maxsize=4096)
def _parse(latex: str) -> list[Any]:
    """Return what math-verify makes of one LaTeX expression; empty where it cannot be read."""
    from math_verify import parse

    config = _latex_config()
    try:
        return parse(f"\\boxed{{{latex}}}", config, fallback_mode="no_fallback", parsing_timeout=0, raise_on_error=True)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever a parser of untrusted text raises, the text cannot be read
        return []


def can_parse(gold: str) -> bool:
    """Say whether math-verify can read a gold answer."""
    return bool(_parse(_prepare(gold)[0]))


def _prepare(gold: str, answer: str = "") -> tuple[str, str]:
    r"""Bring both sides to what the parser reads: no `x \in` before a set, no `\approx 0.58` after a value."""
    gold, answer = simplify_markup(gold), simplify_markup(answer)
    left, *right = _APPROXIMATION.split(gold, maxsplit=1)
    if right:
        gold = right[0] if _SYMBOL.fullmatch(left) else left
    answer = _APPROXIMATION.split(answer, maxsplit=1)[0] or answer
    return _MEMBERSHIP.sub("", gold).strip(), _MEMBERSHIP.sub("", answer).strip()


def compare_symbolically(answer: str, gold: str) -> Reply:
    """Return `correct`, `wrong`, `unparsed` (the answer) or `bad_gold`; the gold's form rules where the two differ.

    Raises:
        MemoryError: the comparison outgrew its process.
    """
    from math_verify import verify

    gold_text, answer_text = _prepare(gold, answer)
    parsed_gold = _parse(gold_text)
    if not parsed_gold:
        if classify_gold(gold) in (GoldKind.TEXT, GoldKind.CHOICE):
            return Reply("wrong")
        return Reply("bad_gold", reason=f"the gold {gold[:100]!r} cannot be read as mathematics")
    parsed_answer = _parse(answer_text)
    if not parsed_answer:
        return Reply("unparsed")
    is_equal = verify(parsed_gold, parsed_answer, timeout_seconds=None, allow_set_relation_comp=True)
    if is_equal and "%" not in gold_text + answer_text and _are_numbers_apart(parsed_gold[0], parsed_answer[0]):
        is_equal = False
    return Reply("correct" if is_equal else "wrong")


def _are_numbers_apart(gold: Any, answer: Any) -> bool:
    """Whether both are numbers that differ by more than the relative tolerance."""
    from sympy import Expr

    if not (isinstance(gold, Expr) and isinstance(answer, Expr) and gold.is_number and answer.is_number):
        return False
    try:
        distance = abs((gold - answer).evalf(30))
        size = max(abs(gold.evalf(30)), abs(answer.evalf(30)))
        return bool(distance > _RELATIVE_TOLERANCE * size)  # sympy's floats do not underflow: 1/2004! is not 0
    except (TypeError, ValueError, OverflowError):
        return False
