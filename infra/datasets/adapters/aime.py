"""AIME: answers are whole numbers from 0 to 999, printed with leading zeros by some files and without by others."""

import re
from collections.abc import Sequence

from infra.datasets.adapters.instruction import BOXED_SUFFIX
from infra.datasets.cells import read_gold, read_optional, read_prompt, require_columns, shown
from infra.datasets.rows import Adapter, Problem, Row
from schemas.errors import DatasetError

_ANSWER = re.compile(r"\d{1,3}")


def adapter_for(columns: Sequence[str]) -> Adapter:
    """Return the adapter for the column names that the data uses: publishers differ in case and wording.

    Raises:
        DatasetError: there is no column for the problem or for the answer.
    """
    prompt = _first_of(("problem", "question"), columns)
    gold = _first_of(("answer", "expected_answer"), columns)
    require_columns(columns, {prompt: "valid_dataset.columns.prompt", gold: "valid_dataset.columns.gold"})
    item_id = _first_of(("id", "unique_id"), columns)
    solution = _first_of(("solution", "reference_solution"), columns)

    def read_problem(row: Row) -> Problem:
        return Problem(
            turns=read_prompt(row, prompt),
            gold=read_answer(row, gold),
            item_id=read_optional(row, item_id),
            solution=read_optional(row, solution),
        )

    return Adapter(read=read_problem, prompt_suffix=BOXED_SUFFIX)


def read_answer(row: Row, column: str) -> str:
    """Return the answer without leading zeros: `025`, 25 and 25.0 are `25`.

    Raises:
        DatasetError: it is not a whole number in [0, 999].
    """
    text = read_gold(row, column)
    if not _ANSWER.fullmatch(text):
        raise DatasetError(f"column {column!r} is {shown(text)}, expected a whole number in [0, 999]")
    return str(int(text))


def _first_of(names: Sequence[str], columns: Sequence[str]) -> str:
    """Return the column that has one of the names, case aside; the first name when none has."""
    by_lower = {column.lower(): column for column in reversed(columns)}
    return next((by_lower[name] for name in names if name in by_lower), names[0])
