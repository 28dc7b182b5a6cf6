r"""Comparison by math-verify with settings under which its known false verdicts do not occur.

Runs inside a grading process only: parsing and comparing may hang or eat memory, and the timeouts of math-verify itself
(signal.alarm) fail outside the main thread and turn every failure into "wrong". Text is read by math-verify's LaTeX
parser alone; its plain-expression extraction evaluates Python and is never used.
"""

import logging
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tasks.grading.exact import GoldKind, classify_gold, has_form
from tasks.grading.jobs import Reply
from tasks.grading.markup import simplify_markup
from tasks.grading.rewriting import rewrite_expression, rewrite_sets, split_signs

if TYPE_CHECKING:
    from math_verify import LatexExtractionConfig

_RELATIVE_TOLERANCE: Final = 1e-6
"""math-verify rounds floats to six decimals, so that 1e-7 equals 2e-7; numbers must agree relatively as well."""

_NUM_POINTS: Final = 3
_POINTS_APART: Final = 1e-6

_APPROXIMATION: Final = re.compile(r"\\(?:approx|simeq|doteq)(?![a-zA-Z])")
_MEMBERSHIP: Final = re.compile(r"^[A-Za-z](?:_\{?\w\}?)?\s*\\in(?![a-zA-Z])")
_SYMBOL: Final = re.compile(r"(?!\\(?:pi|infty)(?![a-zA-Z]))[\\A-Za-z_ ]{0,20}")
"""What stands before an approximation and is no value, or nothing."""


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


def _parse_signs(latex: str) -> list[Any]:
    r"""Return what math-verify makes of an expression; it cannot read a `\pm` inside a fraction, root or bracket."""
    return _parse(latex) or _parse(split_signs(latex))


def can_parse(gold: str) -> bool:
    """Say whether a rule of ours or math-verify can read a gold answer."""
    return has_form(gold) or bool(_parse_signs(_prepare(gold)[0]))


def _prepare(gold: str, answer: str = "") -> tuple[str, str]:
    r"""Bring both sides to what the parser reads: no `x \in` before a set, no `\approx 0.58` after a value."""
    answer, gold = rewrite_sets(simplify_markup(answer), simplify_markup(gold))
    texts = (_MEMBERSHIP.sub("", _value_of_approximation(side)).strip() for side in (gold, answer))
    of_gold, of_answer = map(rewrite_expression, texts)
    return of_gold, of_answer


def _value_of_approximation(text: str) -> str:
    r"""Return the value of `\frac{4}{7} \approx 0.57`, of `x \approx 0.57` and of `\approx 0.57`."""
    left, *right = _APPROXIMATION.split(text, maxsplit=1)
    return right[0] if right and _SYMBOL.fullmatch(left) else left


def compare_symbolically(answer: str, gold: str) -> Reply:
    """Return `correct`, `wrong`, `unparsed` (the answer) or `bad_gold`; the gold's form rules where the two differ.

    Raises:
        MemoryError: the comparison outgrew its process.
    """
    from math_verify import verify

    gold_text, answer_text = _prepare(gold, answer)
    parsed_gold = _parse_signs(gold_text)
    if not parsed_gold:
        if classify_gold(gold) in (GoldKind.TEXT, GoldKind.CHOICE, GoldKind.TIME) or has_form(gold):
            return Reply("wrong")
        return Reply("bad_gold", reason=f"the gold {gold[:100]!r} cannot be read as mathematics")
    parsed_answer = _parse_signs(answer_text)
    if not parsed_answer:
        return Reply("unparsed")
    is_equal = verify(parsed_gold, parsed_answer, timeout_seconds=None, allow_set_relation_comp=True)
    if not is_equal:
        forms = ([_split_roots(parsed_gold[0])], [_split_roots(parsed_answer[0])])
        is_changed = forms != ([parsed_gold[0]], [parsed_answer[0]])
        is_equal = is_changed and verify(*forms, timeout_seconds=None, allow_set_relation_comp=True)
    if is_equal and "%" not in gold_text + answer_text and _are_numbers_apart(parsed_gold[0], parsed_answer[0]):
        is_equal = False
    return Reply("correct" if is_equal else "wrong")


def _split_roots(expression: Any) -> Any:
    r"""Return an expression with roots of products and quotients split, as for positive symbols.

    `\sqrt{1/n}` and `\frac{1}{\sqrt{n}}` are one answer; a root of a square stays, so that |x| is not x.
    """
    from sympy import Expr, Mul, Pow

    if not isinstance(expression, Expr) or expression.is_number:
        return expression

    def is_root(part: Any) -> bool:
        return isinstance(part, Pow) and part.exp.is_Rational is True and part.exp.is_Integer is False

    def split(part: Any) -> Any:
        factors = Mul.make_args(part.base.together())
        roots = [
            1 / Pow(factor.base ** (-factor.exp), part.exp)
            if isinstance(factor, Pow) and factor.exp.is_Integer and factor.exp.is_negative
            else Pow(factor, part.exp)
            for factor in factors
        ]
        return Mul(*roots)

    return expression.replace(is_root, split)


def differ_at_points(answer: str, gold: str) -> Reply:
    """Say `wrong` of two expressions that differ at positive numbers put for their symbols; else `undecided`.

    For what algebra could not decide in time. Both sides must be readable; of an equation the right side counts.
    """
    gold_text, answer_text = _prepare(gold, answer)
    sides = [_expression(parsed[0]) for parsed in (_parse(gold_text), _parse(answer_text)) if parsed]
    if len(sides) < 2:
        return Reply("unparsed")
    of_gold, of_answer = sides
    if of_gold is None or of_answer is None:
        return Reply("undecided" if of_gold is None else "wrong")
    gold_values = [_value_at(of_gold, number) for number in range(_NUM_POINTS)]
    answer_values = [_value_at(of_answer, number) for number in range(_NUM_POINTS)]
    if None not in gold_values and set(answer_values) == {None}:
        return Reply("unparsed")
    for first, second in zip(gold_values, answer_values, strict=True):
        if None not in (first, second) and abs(first - second) > _POINTS_APART * (abs(first) + abs(second)):
            return Reply("wrong")
    return Reply("undecided")


def _expression(parsed: Any) -> Any:
    from sympy import Eq, Expr

    if isinstance(parsed, Eq):
        parsed = parsed.rhs
    return parsed if isinstance(parsed, Expr) else None


def _value_at(expression: Any, number: int) -> Any:
    """Return the value with the symbols, by their names, at primes' square roots; None where it has none."""
    from sympy import I, prime, sqrt

    names = sorted(symbol.name for symbol in expression.free_symbols)
    points = {name: sqrt(prime(7 * number + 3 + sum(map(ord, name)) % 97)) / 7 for name in names}
    value = expression.subs(
        {s: I if s.name == "i" else points[s.name].evalf(30) for s in expression.free_symbols}
    ).evalf(30)
    return value if value.is_number and value.is_finite else None


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
