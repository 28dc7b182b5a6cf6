"""GSM8K: `question`, and `answer` as a worked solution that ends in `#### 1,234`."""

import re
from collections.abc import Sequence

from infra.datasets.adapters.instruction import BOXED_SUFFIX
from infra.datasets.cells import read_optional, read_prompt, read_required, require_columns, shown
from infra.datasets.rows import Adapter, Problem, Row
from schemas.errors import DatasetError

MARK = "####"
"""What stands before the gold answer."""
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def adapter_for(columns: Sequence[str]) -> Adapter:
    """Return the adapter of GSM8K and data of its form.

    Raises:
        DatasetError: `question` or `answer` is not among the columns.
    """
    require_columns(columns, {"question": "valid_dataset.columns.prompt", "answer": "valid_dataset.columns.gold"})
    return Adapter(read=read_problem, prompt_suffix=BOXED_SUFFIX)


def read_problem(row: Row) -> Problem:
    """Return the problem of one row; the gold is what follows the last mark, its thousands separators removed.

    Raises:
        DatasetError: the answer has no mark or nothing behind it.
    """
    solution = read_required(row, "answer")
    _, mark, gold = solution.rpartition(MARK)
    if not mark or not gold.strip():
        raise DatasetError(f"column 'answer' has no gold after {MARK!r}: it ends {shown(solution[-40:])}")
    return Problem(
        turns=read_prompt(row, "question"),
        gold=_THOUSANDS.sub("", gold.strip()),
        item_id=read_optional(row, "id"),
        solution=solution,
    )
