"""Items in a Parquet file, whole: what a version of a validation set keeps of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from schemas.dataset import EvalItem
from schemas.errors import DatasetError

if TYPE_CHECKING:
    import pyarrow as pa


def to_table(items: Sequence[EvalItem]) -> "pa.Table":
    """Return one row per item, in order, with the fields of EvalItem as columns."""
    import pyarrow as pa

    text = pa.string()
    turn = pa.struct([pa.field("role", text, nullable=False), pa.field("content", text, nullable=False)])
    types: dict[str, pa.DataType] = {"messages": pa.list_(turn), "subsets": pa.map_(text, text)}
    schema = pa.schema(
        [
            pa.field(name, types.get(name, text), nullable=name in ("solution", "cluster_id"))
            for name in EvalItem.model_fields
        ]
    )
    rows = [item.model_dump() | {"subsets": list(item.subsets.items())} for item in items]
    return pa.Table.from_pylist(rows, schema=schema)


def read_items(path: Path) -> tuple[EvalItem, ...]:
    """Return the items of a file that `to_table` filled; fields that an older file lacks take their defaults.

    Raises:
        DatasetError: the file cannot be read or does not hold items.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            rows = file.read().to_pylist(maps_as_pydicts="strict")
        return TypeAdapter(tuple[EvalItem, ...]).validate_python(rows)
    except (OSError, pa.ArrowException, ValidationError, KeyError) as exc:
        raise DatasetError(f"{path} cannot be read: {exc}") from exc
