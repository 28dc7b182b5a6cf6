"""Scores of reasoning_gym tasks: by the task's own scorer, or by an equal rule where that spares importing the package.

The package takes seconds to import and some of its scorers evaluate the answer as Python. Both happen, if at all,
inside a grading process, and an answer goes to an evaluating scorer only when it is a literal or plain arithmetic.
"""

import ast
import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final, cast

from tasks.grading.jobs import Reply
from tasks.grading.markup import simplify_markup, unwrap
from tasks.grading.rationals import exact_value

EVAL_TASKS: Final = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Tasks whose scorer hands the answer to eval()."""
EXPRESSION_TASKS: Final = frozenset(
    {"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"}
)
"""Tasks whose scorer hands the answer to sympy.parse_expr, which evaluates it."""

_EXPRESSION: Final = re.compile(r"(?:[0-9+\-*/^(), \t\n]|(?<=\d)\.(?=\d)|(?<![A-Za-z])[A-Za-z](?![A-Za-z]))*")
_FUNCTIONS: Final = re.compile(
    r"(?<![A-Za-z_])(?:sin|cos|tan|sec|csc|cot|exp|log|ln|sqrt|asin|acos|atan|pi|Abs)(?![A-Za-z_])"
)
_MAX_EXPRESSION_CHARS: Final = 1000
_GSM_NUMBER: Final = re.compile(r"\b-?\d+(?:\.\d+)?\b")
_NUMBER_IN_ANSWER: Final = re.compile(r"[+-]?\d[\d, ]*(?:\.\d+)?|\.\d+")
_PLAIN_NUMBER: Final = re.compile(r"[+-]?\d{1,40}(?:\.\d{1,40})?")


def plain_answer(found: str, *, is_number: bool) -> str:
    """Return an answer as the scorers expect it: without delimiters, and a number without currency, commas or unit."""
    answer = unwrap(found)
    value = exact_value(answer) if is_number else None
    if value is None or value.is_percent:
        return answer
    number = _NUMBER_IN_ANSWER.search(simplify_markup(answer))
    plain = "" if number is None else number.group().replace(",", "").replace(" ", "")
    same = exact_value(plain)
    return plain if same is not None and same.value == value.value else answer


# --------------------------------------------------------------- rules equal to the scorers of frequent tasks


def _score_decimal(answer: str, oracle: str) -> float:
    """The rule of chain_sum and products: equal decimals, else the share of the answer that the gold makes up."""
    answer, oracle = answer.replace(",", ""), oracle.replace(",", "")
    try:
        if Decimal(answer) == Decimal(oracle):
            return 1.0
    except InvalidOperation:
        pass
    return len(oracle) / len(answer) if answer and oracle in answer else 0.0


def _score_text(answer: str, oracle: str) -> float:
    """The rule of tasks without a scorer of their own, such as basic_arithmetic."""
    if answer == oracle:
        return 1.0
    return len(oracle) / len(answer) if oracle in answer else 0.0


def _score_first_number(answer: str, oracle: str) -> float:
    """The rule of gsm_symbolic: 0.01 for any number."""
    match = _GSM_NUMBER.search(answer)
    if match is None:
        return 0.0
    return 1.0 if float(match.group()) == float(oracle) else 0.01


_RULES: Final[dict[str, Callable[[str, str], float]]] = {
    "chain_sum": _score_decimal,
    "products": _score_decimal,
    "basic_arithmetic": _score_text,
    "gsm_symbolic": _score_first_number,
}


def score_plainly(task: str, answer: str, entry_json: str) -> float | None:
    """Return the score in [0, 1] of a task whose rule is known and whose answer is a plain number, else None."""
    rule = _RULES.get(task)
    if rule is None or not _PLAIN_NUMBER.fullmatch(answer):
        return None
    oracle = json.loads(entry_json).get("answer")
    return rule(answer, oracle) if isinstance(oracle, str) and _PLAIN_NUMBER.fullmatch(oracle) else None


# ----------------------------------------------------------------------------------- inside a grading process


def import_scorers() -> None:
    """Import reasoning_gym, so that processes forked from this one have it."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a dependency's source has literals compared by identity
        import reasoning_gym

    _ = reasoning_gym.__version__


@lru_cache(maxsize=64)
def _scorer(task: str) -> Callable[[str, dict[str, object]], float]:
    from reasoning_gym.factory import get_score_answer_fn

    return cast("Callable[[str, dict[str, object]], float]", get_score_answer_fn(task))


def is_safe_to_evaluate(task: str, answer: str) -> bool:
    """Say whether an answer may go to the scorer of `task`, which may evaluate it as Python."""
    if task in EXPRESSION_TASKS:
        text = _FUNCTIONS.sub(" ", answer)
        return len(answer) <= _MAX_EXPRESSION_CHARS and _EXPRESSION.fullmatch(text) is not None
    if task in EVAL_TASKS:
        try:
            ast.parse(answer.strip(), mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return True  # eval() refuses it too, and the scorer goes on with the text
        try:
            ast.literal_eval(answer.strip())
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return answer.strip().isidentifier()
    return True


def score_entry(task: str, answer: str, entry_json: str) -> Reply:
    """Return the score of `answer` by the scorer of `task`: in [0, 1], or `crashed` with what it raised."""
    if not is_safe_to_evaluate(task, answer):
        return Reply("unparsed")
    try:
        score = float(_scorer(task)(answer, json.loads(entry_json)))
    except MemoryError:
        raise
    except Exception as exc:  # noqa: BLE001 - a foreign scorer may raise anything; that is no verdict on the model
        return Reply("crashed", reason=f"the scorer of {task!r} raised {type(exc).__name__}: {exc}")
    return Reply("scored", score=min(1.0, max(0.0, score)))
