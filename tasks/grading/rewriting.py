r"""LaTeX that the parser of math-verify misreads, rewritten to an equal form that it reads.

`1i` is a product of the number 1 to it and no i, `14.0` a float, `x^{2.0}` no square, `1:2:3` the quotient 1/6.
"""

import re
from typing import Final

from tasks.grading.ratios import as_tuple
from tasks.grading.sets import as_union, read_set

_WHOLE_DECIMAL: Final = re.compile(r"(?<![\d.])(\d+)\.0+(?!\d)")
_UNIT_EXPONENT: Final = re.compile(r"(?<![\\A-Za-z_])(?<!_\{)([A-Za-z])\^(?:\{\s*1\s*\}|1(?![\d.]))")
"""An exponent 1 of a variable; the upper limit of an integral or a sum is none."""
_UNIT_COEFFICIENT: Final = re.compile(
    r"(?<![\w.^\\/}])(?<!_\{)1\s?(?=[A-Za-z](?![A-Za-z])|\\(?:pi|sqrt|sin|cos|tan|ln|log|alpha|beta|gamma|theta|phi)(?![a-z]))"
)
"""A factor 1 before a variable, root or function; `1\\pm` and the mixed number `1\frac12` keep theirs."""
_DECIMAL_FACTOR: Final = re.compile(
    r"(?<![\w.^}])(\d{1,6})\.(\d{1,6})\s?(?=[A-Za-z](?![A-Za-z])|\\(?:pi|sqrt)(?![a-z])|\()"
)
_PRODUCT: Final = re.compile(
    r"(?<![\w.^\\/}])(\d{1,15}|\(-?\d{1,15}(?:\.\d{1,15})?\))\s?(?=\(-?\d{1,15}(?:\.\d{1,15})?\))"
)
"""A number before another in brackets, as in `2(3)`: math-verify takes it for a function. `0.2(3)` repeats its 3."""
_BOTH_SIGNS: Final = re.compile(r"\\(p|m)(?:m|p)(?![a-zA-Z])")
_BRACED_SET: Final = re.compile(r"\\\{(.*)\\\}", re.DOTALL)


def split_signs(text: str) -> str:
    r"""Return `\frac{a \pm b}{c}` as the two expressions that it stands for; every other text as it is.

    Of several `\pm`, which is which cannot be told; a `\mp` has the other sign.
    """
    if match := _BRACED_SET.fullmatch(text):
        return rf"\{{{split_signs(match[1])}\}}"
    signs = [match[1] for match in _BOTH_SIGNS.finditer(text)]
    if "," in text or (signs.count("p") != 1 and signs != ["m"]):
        return text
    upper = _BOTH_SIGNS.sub(lambda match: "+" if match[1] == "p" else "-", text)
    lower = _BOTH_SIGNS.sub(lambda match: "-" if match[1] == "p" else "+", text)
    return f"{upper}, {lower}"


def rewrite_expression(text: str) -> str:
    """Return an equal form of a simplified expression that math-verify reads as it is meant."""
    text = _WHOLE_DECIMAL.sub(r"\1", text)
    text = _UNIT_COEFFICIENT.sub("", _UNIT_EXPONENT.sub(r"\1", text))
    text = _DECIMAL_FACTOR.sub(_as_fraction, text)
    text = _PRODUCT.sub(r"\1 \\cdot ", text)
    return as_tuple(text)


def _as_fraction(match: re.Match[str]) -> str:
    whole, decimals = match.groups()
    return rf"\frac{{{int(whole + decimals)}}}{{{10 ** len(decimals)}}}"


def rewrite_sets(answer: str, gold: str) -> tuple[str, str]:
    """Return both sides as unions of intervals where both are sets of numbers and not two plain pairs."""
    of_answer, of_gold = read_set(answer), read_set(gold)
    if of_answer is None or of_gold is None or (of_answer.is_plain and of_gold.is_plain):
        return answer, gold
    if of_answer.name and of_gold.name and of_answer.name != of_gold.name:
        return answer, gold
    return as_union(answer) or answer, as_union(gold) or gold
