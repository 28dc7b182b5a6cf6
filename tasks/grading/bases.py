r"""Numbers in another base: `52_8`, `2516_{\text{eight}}`, `(101)_2`, `2516 in base 8`, `0x1F`."""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from tasks.grading.markup import simplify_markup
from tasks.grading.rationals import exact_value

_NAMES: Final = {
    name: base
    for base, names in {
        2: "two binary bin",
        3: "three ternary",
        4: "four quaternary",
        5: "five",
        6: "six",
        7: "seven",
        8: "eight octal oct",
        9: "nine",
        10: "ten decimal dec",
        11: "eleven",
        12: "twelve duodecimal",
        13: "thirteen",
        14: "fourteen",
        15: "fifteen",
        16: "sixteen hexadecimal hex",
        20: "twenty",
    }.items()
    for name in names.split()
}
_NAME: Final = "|".join(sorted(_NAMES, key=len, reverse=True))
_BASE: Final = rf"(\d{{1,2}}|{_NAME})"
_DIGITS: Final = r"\(?([+-]?[0-9A-Za-z]{1,400}?(?:\.[0-9A-Za-z]{1,400}?)?)\)?"
_SUBSCRIPT: Final = re.compile(rf"{_DIGITS}_\(?(?:base-?)?{_BASE}\)?", re.IGNORECASE)
_BEHIND: Final = re.compile(
    rf"{_DIGITS}(?:,?\(?(?:in)?base-?{_BASE}\)?|\(?(?:in)?(binary|ternary|octal|decimal|hexadecimal)\)?)", re.IGNORECASE
)
_PREFIX: Final = re.compile(r"([+-]?)0([xbo])([0-9A-Fa-f]{1,400})")
_PREFIXES: Final = {"x": 16, "b": 2, "o": 8}
_SMALL_DIGITS: Final = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SMALL: Final = re.compile("[₀-₉]{1,2}$")


class BasedNumber(NamedTuple):
    """Digits and the base they are written in."""

    digits: str
    """Upper case, with sign and point, without leading zeros."""
    base: int
    """From 2 to 36."""

    @property
    def value(self) -> int | None:
        """The number, where it is whole."""
        return int(self.digits, self.base) if "." not in self.digits else None


@lru_cache(maxsize=8192)
def based_number(text: str) -> BasedNumber | None:
    """Return the number that names its base, or None: no base is named, or a digit does not exist in it."""
    if len(text) > 500 or not (
        "_" in text or "0" in text[:2] or _SMALL.search(text) or re.search(_NAME + "|base", text)
    ):
        return None
    text = _SMALL.sub(lambda match: "_" + match.group().translate(_SMALL_DIGITS), text.strip())
    if match := _PREFIX.fullmatch(text):
        return _based(match[1] + match[3], _PREFIXES[match[2]])
    plain = re.sub(r"\\text|[\s{},]", "", simplify_markup(text))
    if match := _SUBSCRIPT.fullmatch(plain):
        digits, name = match.groups()
    elif match := _BEHIND.fullmatch(plain):
        digits, name = match[1], match[2] or match[3]
    else:
        return None
    return _based(digits, int(name) if name.isdecimal() else _NAMES[name.lower()])


def _based(digits: str, base: int) -> BasedNumber | None:
    sign = "-" if digits.startswith("-") else ""
    digits = digits.lstrip("+-")
    is_variable = not any(map(str.isdigit, digits)) and (len(digits) == 1 or not digits.isupper())  # a_{12}
    digits = digits.upper()
    if is_variable or not 2 <= base <= 36:
        return None
    if any(int(digit, 36) >= base for digit in digits if digit != "."):
        return None
    return BasedNumber(sign + (digits.lstrip("0") or "0"), base)


def compare_bases(answer: str, gold: str) -> bool | None:
    """Compare numbers where one names its base; None where neither does.

    The base that the gold names is the one that was asked for: another base is wrong, none means the same digits. A
    gold without a base is a decimal number.
    """
    of_gold, of_answer = based_number(gold), based_number(answer)
    if of_gold is not None and of_gold.base != 10:
        if of_answer is not None:
            return of_answer == of_gold
        digits = re.sub(r"[\s,]", "", simplify_markup(answer)).upper()
        if digits.lstrip("0") == of_gold.digits:
            return True
        return False if exact_value(answer) is not None else None
    gold_value = exact_value(of_gold.digits if of_gold is not None else gold)
    if gold_value is None:
        return None
    if of_answer is not None:
        return gold_value.value == of_answer.value
    return gold_value.value == value.value if of_gold and (value := exact_value(answer)) else None
