"""MATH-500 and data of its form: `problem`, `answer`, and, where it has them, subject, level, unique_id, solution."""

from collections.abc import Sequence

from infra.datasets.adapters.instruction import BOXED_SUFFIX
from infra.datasets.cells import read_gold, read_optional, read_prompt, read_subsets, require_columns
from infra.datasets.rows import Adapter, Problem, Row


def adapter_for(columns: Sequence[str]) -> Adapter:
    """Return the adapter of MATH-500; subject and level become subsets.

    Raises:
        DatasetError: `problem` or `answer` is not among the columns.
    """
    require_columns(columns, {"problem": "valid_dataset.columns.prompt", "answer": "valid_dataset.columns.gold"})
    return Adapter(read=read_problem, prompt_suffix=BOXED_SUFFIX)


def read_problem(row: Row) -> Problem:
    """Return the problem of one row. Raises DatasetError where a cell is empty or of a wrong type."""
    return Problem(
        turns=read_prompt(row, "problem"),
        gold=read_gold(row, "answer"),
        item_id=read_optional(row, "unique_id"),
        subsets=read_subsets(row, ("subject", "level")),
        solution=read_optional(row, "solution"),
    )
