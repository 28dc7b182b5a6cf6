"""What of a table of problems is compared: numbers, categories and the texts themselves.

Owns how a row becomes features; must not compare anything. Reads item_id, prompt, answer, subset and num_prompt_tokens,
all or some.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from infra.arrays import FloatArray
from schemas.errors import DatasetError
from tasks.drift.user_features import UserFeature, evaluate_feature
from tasks.grading.exact import classify_gold
from tasks.grading.extraction import find_gold
from tasks.grading.rationals import exact_value

COLUMNS: Final = ("prompt", "answer", "subset", "num_prompt_tokens")
"""Columns that are compared, each where both tables have it."""

SUBSET: Final = "subset:"
"""Before the key in the name of a subset's feature."""
ABSENT: Final = "(absent)"
"""Category of a row without the subset key."""

_NUMBER: Final = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?")
_MAX_DIGITS: Final = 300
"""Longer digit strings overflow a double; their number is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features of one table."""

    num_rows: int
    """Rows of the table."""
    numbers: dict[str, FloatArray] = field(default_factory=dict[str, FloatArray])
    """Values of the rows that have one, by feature; ascending, so that the order of the rows changes no last digit."""
    categories: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    """Rows per category, by feature."""
    vectors: dict[str, FloatArray] = field(default_factory=dict[str, FloatArray])
    """One vector per row, shape `(num_rows, d)`, by feature."""
    prompts: list[str] = field(default_factory=list[str])
    """The texts; empty without a column `prompt`."""
    has_subsets: bool = False
    """Whether there is a column `subset`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every feature that has a value."""
        return (*self.numbers, *self.categories, *self.vectors, *(("text",) if self.prompts else ()))


def extract_features(table: pa.Table, user_features: Mapping[str, UserFeature]) -> Features:
    """Return the features of `table` with at least one value; null, NaN and infinite values are no values.

    Raises:
        DatasetError: a column is of a type that cannot be read.
        ConfigError: a user's feature fails on a row.
    """
    numbers: dict[str, FloatArray] = {}
    categories: dict[str, Counter[str]] = {}
    vectors: dict[str, FloatArray] = {}
    prompts = _texts(table, "prompt")
    if "num_prompt_tokens" in table.column_names:
        numbers["num_prompt_tokens"] = _token_counts(table)
    if prompts:
        numbers["prompt_length"] = np.array([len(prompt) for prompt in prompts], np.float64)
        numbers["number_count"], numbers["number_magnitude"] = _numbers_in(prompts)
        categories["script"] = Counter(_script(prompt) for prompt in prompts)
    if answers := _texts(table, "answer"):
        kinds, magnitudes = zip(*map(_describe_answer, answers), strict=True)
        categories["answer_kind"] = Counter(kinds)
        numbers["answer_magnitude"] = np.array([value for value in magnitudes if value is not None], np.float64)
    for name, values in read_subsets(table).items():
        categories[name] = Counter(values)
    for name, function in user_features.items():
        values = evaluate_feature(name, function, prompts)
        if isinstance(values, list):
            categories[name] = Counter(values)
        elif values.ndim > 1:
            vectors[name] = values
        else:
            numbers[name] = values
    return Features(
        num_rows=table.num_rows,
        numbers={name: np.sort(values) for name, values in numbers.items() if len(values)},
        categories={name: counts for name, counts in categories.items() if counts},
        vectors=vectors,
        prompts=prompts,
        has_subsets=any(name.startswith("subset") for name in table.column_names),
    )


def _texts(table: pa.Table, name: str) -> list[str]:
    if name not in table.column_names:
        return []
    column = table.column(name)
    if pa.types.is_null(column.type):
        return []
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise DatasetError(f"column {name!r} is {column.type}, expected string; name the right column")
    return [text for text in column.to_pylist() if text is not None]


def _token_counts(table: pa.Table) -> FloatArray:
    column = table.column("num_prompt_tokens")
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_null(column.type)):
        raise DatasetError(f"column 'num_prompt_tokens' is {column.type}, expected whole numbers")
    values = column.cast(pa.float64()).to_numpy()
    return values[np.isfinite(values)]


def _numbers_in(prompts: Iterable[str]) -> tuple[FloatArray, FloatArray]:
    """Return how many numbers each prompt has, and the mean magnitude of those of the prompts that have any."""
    found = [_NUMBER.findall(prompt) for prompt in prompts]
    magnitudes = [sum(map(_magnitude, numbers)) / len(numbers) for numbers in found if numbers]
    return np.array([len(numbers) for numbers in found], np.float64), np.array(magnitudes, np.float64)


@lru_cache(maxsize=65_536)
def _magnitude(number: str) -> float:
    digits = number.replace(",", "")
    return math.log10(1 + float(digits)) if len(digits) <= _MAX_DIGITS else float(_MAX_DIGITS)


@lru_cache(maxsize=65_536)
def _describe_answer(answer: str) -> tuple[str, float | None]:
    """Return the kind of a gold answer and, of a number, its magnitude: signed, log10(1 + |x|)."""
    text = find_gold(answer.strip())
    if not text:
        return "empty", None
    exact = exact_value(text)
    if exact is None:
        return str(classify_gold(text)), None
    kind = "integer" if exact.value.denominator == 1 else "fraction"
    # Through logarithms of whole numbers, which have no largest one.
    size = math.log10(abs(exact.value.numerator) + exact.value.denominator) - math.log10(exact.value.denominator)
    return kind, math.copysign(size, exact.value)


def _script(text: str) -> str:
    """Return the script of most letters, by their Unicode names: LATIN, CYRILLIC, CJK, …"""
    if text.isascii():
        return "LATIN" if any(map(str.isalpha, text)) else "none"
    scripts = Counter(_script_of(letter) for letter in text if letter.isalpha())
    return max(sorted(scripts), key=lambda script: scripts[script]) if scripts else "none"


@lru_cache(maxsize=4_096)
def _script_of(letter: str) -> str:
    return unicodedata.name(letter, "UNNAMED").partition(" ")[0]


def read_subsets(table: pa.Table) -> dict[str, list[str]]:
    """Return the values of each subset key, under `subset:key`; `ABSENT` where a row has none.

    A cell is `key=value`, a list of such, or a map; bare values are under `subset`. Columns that `split_subsets` made
    are taken as they are.

    Raises:
        DatasetError: a cell is something else.
    """
    split = [name for name in table.column_names if name.startswith(SUBSET)]
    if split:
        return {
            name: [ABSENT if value is None else value for value in table.column(name).to_pylist()] for name in split
        }
    if "subset" not in table.column_names:
        return {}
    values: dict[str, list[str]] = {}
    for row, cell in enumerate(table.column("subset").to_pylist()):
        for name, value in _pairs(cell):
            if name not in values:
                values[name] = [ABSENT] * table.num_rows
            values[name][row] = value
    return values


def split_subsets(table: pa.Table) -> pa.Table:
    """Return the table with a column per subset key in place of `subset`; as it is where no row has a subset."""
    split = read_subsets(table)
    for name, values in split.items():
        table = table.append_column(name, pa.array(values, pa.string()))
    return table.drop_columns("subset") if split else table


def _pairs(cell: object) -> Sequence[tuple[str, str]]:
    if cell is None:
        return []
    if isinstance(cell, str):
        key, equals, value = cell.partition("=")
        return [(f"{SUBSET}{key}", value)] if equals else [("subset", cell)]
    if isinstance(cell, list):
        return [pair for part in cell for pair in (_pairs(part) if isinstance(part, str) else _entry(part))]
    raise DatasetError(f"column 'subset' holds {cell!r}, expected 'key=value' or a list of such")


def _entry(part: object) -> Sequence[tuple[str, str]]:
    if isinstance(part, tuple) and len(part) == 2:
        return [(f"{SUBSET}{part[0]}", str(part[1]))]
    raise DatasetError(f"column 'subset' holds {part!r}, expected 'key=value'")
