"""Data that no adapter knows: the configuration says which column holds what."""

from collections.abc import Mapping, Sequence

from infra.datasets.adapters.instruction import BOXED_SUFFIX
from infra.datasets.cells import (
    read_gold,
    read_messages,
    read_optional,
    read_prompt,
    read_required,
    read_subsets,
    require_columns,
)
from infra.datasets.rows import Adapter, Problem, Row
from schemas.valid_dataset import ColumnMapping


def adapter_for(columns: Sequence[str], mapping: ColumnMapping) -> Adapter:
    """Return the adapter that reads the mapped columns; a conversation of the data's own gets no suffix.

    Raises:
        DatasetError: a mapped column that every row needs is not among the columns.
    """
    required = {"prompt": mapping.prompt, "messages": mapping.messages, "gold": mapping.gold, "id": mapping.id}
    require_columns(columns, _keys(required))
    optional = _keys({"solution": mapping.solution, "cluster": mapping.cluster})
    optional |= dict.fromkeys(mapping.subsets, "valid_dataset.columns.subsets")

    def read_problem(row: Row) -> Problem:
        if mapping.prompt is not None:
            turns = read_prompt(row, mapping.prompt)
        else:
            turns = read_messages(row, mapping.messages or "")
        return Problem(
            turns=turns,
            gold=read_gold(row, mapping.gold),
            item_id=read_required(row, mapping.id) if mapping.id is not None else None,
            subsets=read_subsets(row, mapping.subsets),
            cluster=read_optional(row, mapping.cluster),
            solution=read_optional(row, mapping.solution),
        )

    suffix = BOXED_SUFFIX if mapping.prompt is not None else ""
    return Adapter(read=read_problem, prompt_suffix=suffix, optional=optional)


def _keys(columns: Mapping[str, str | None]) -> dict[str, str]:
    return {column: f"valid_dataset.columns.{key}" for key, column in columns.items() if column is not None}
