r"""Units that both an answer and its gold name: `1.5 m` equals `150 \text{ cm}`, and 10 cm are not 10 m."""

import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from tasks.grading.markup import simplify_markup

_SIZES: Final = {
    "length": {
        "mm": "1",
        "millimeter": "1",
        "cm": "10",
        "centimeter": "10",
        "m": "1000",
        "meter": "1000",
        "metre": "1000",
    }
    | {"km": "1000000", "kilometer": "1000000", "in": "25.4", "inch": "25.4", "inche": "25.4", "ft": "304.8"}
    | {"foot": "304.8", "feet": "304.8", "yd": "914.4", "yard": "914.4", "mile": "1609344"},
    "mass": {"mg": "1", "g": "1000", "gram": "1000", "kg": "1000000", "kilogram": "1000000"}
    | {"oz": "28349.523125", "ounce": "28349.523125", "lb": "453592.37", "pound": "453592.37"},
    "time": {"second": "1", "sec": "1", "min": "60", "minute": "60", "hr": "3600", "hour": "3600", "day": "86400"}
    | {"week": "604800"},
    "volume": {"ml": "1", "milliliter": "1", "l": "1000", "liter": "1000", "litre": "1000"},
    "money": {"cent": "1", "¢": "1", "dollar": "100"},
}
"""Sizes of units by what they measure. Months and years have no fixed number of days."""
_DIMENSIONS: Final = {name: dimension for dimension, names in _SIZES.items() for name in names}
_UNIT: Final = re.compile(
    r"[\d}\s](?:\\text\s*\{)?\s*(?P<power>square|sq\.?|cubic|cu\.?)?\s*(?P<name>[A-Za-z¢]+?)s?\s*\}?\s*(?:\^\{?(?P<exponent>[23])\}?)?$"
)
_PRODUCT: Final = re.compile(
    r"(?P<first>\d{1,9}(?:\.\d{1,9})?)\s?(?P<unit>UNIT)\s?(?:x|\*|by|\\times|\\cdot)\s?"
    r"(?P<second>\d{1,9}(?:\.\d{1,9})?)\s?(?P=unit)".replace("UNIT", r"(?:\\text\s?\{\s?)?[A-Za-z]{1,12}\s?\}?")
)
_POWERS: Final = {"square": 2, "sq": 2, "sq.": 2, "cubic": 3, "cu": 3, "cu.": 3}


@lru_cache(maxsize=4096)
def unit_of(text: str) -> tuple[str, int, Fraction] | None:
    """Return what a unit measures, its power and its size; None where no known unit ends the text."""
    match = _UNIT.search(simplify_markup(text))
    if match is None:
        return None
    name = match["name"] if match["name"] in _DIMENSIONS else match["name"].lower()
    if name not in _DIMENSIONS:
        return None
    power = _POWERS[match["power"]] if match["power"] else int(match["exponent"] or 1)
    return _DIMENSIONS[name], power, Fraction(_SIZES[_DIMENSIONS[name]][name]) ** power


def area_for(answer: str, gold: str) -> str | None:
    """Return the product that `5 cm x 6 cm` stands for, `30 cm^2`; None of other texts, and for a gold of length."""
    match = _PRODUCT.fullmatch(" ".join(simplify_markup(answer).split()))
    if match is None or unit_of(f"1 {match['unit']}") is None:
        return None
    of_gold = unit_of(gold)
    if of_gold is not None and of_gold[1] != 2:
        return None
    return f"{Decimal(match['first']) * Decimal(match['second']):f} {match['unit']}^2"


def unit_ratio(answer: str, gold: str) -> Fraction | None:
    """Return how many units of the gold one unit of the answer is; None unless both name units of one dimension."""
    of_gold = unit_of(gold)
    of_answer = None if of_gold is None else unit_of(answer)
    if of_gold is None or of_answer is None or of_gold[:2] != of_answer[:2]:
        return None
    return of_answer[2] / of_gold[2]
