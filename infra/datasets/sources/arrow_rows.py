"""Rows of Arrow record batches with the values that the file states: what Parquet and Arrow files share."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from infra.datasets.numbers import from_storage
from infra.datasets.rows import SourceRow
from infra.datasets.sources.regular_file import require_regular_file
from schemas.errors import DatasetError

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS: Final = 64
"""Rows decoded at once. A dictionary-coded file of 19 kB may hold 8,192 texts of 1 MB: a batch bounds the memory, and
batches of 64 take no longer than batches of 4,096."""


def read_arrow(path: Path) -> Iterator[SourceRow]:
    """Yield the rows of an Arrow file or stream (`.arrow`, what `datasets` keeps).

    Raises:
        DatasetError: the file is no Arrow, damaged, has a column twice, or a value that Python has no form for.
    """
    require_regular_file(path)
    yield from number_rows(_record_batches(path), path, "Arrow")


def number_rows(batches: "Iterable[pa.RecordBatch]", path: Path, kind: str) -> Iterator[SourceRow]:
    """Yield the rows of all batches, numbered from 1.

    Raises:
        DatasetError: a batch cannot be read, has a column twice, or a value that Python has no form for.
    """
    import pyarrow as pa

    number = 0
    try:
        for batch in batches:
            require_unique_columns(batch.schema, str(path))
            for start in range(0, batch.num_rows, BATCH_ROWS):
                for values in to_rows(batch.slice(start, BATCH_ROWS)):
                    number += 1
                    yield SourceRow(number, values)
    # ValueError: text that is no UTF-8, a date beyond the year 9999, a timestamp of single nanoseconds
    except (pa.ArrowException, OSError, ValueError, OverflowError) as exc:
        raise DatasetError(f"{path}: cannot be read as {kind} after row {number}: {exc}") from exc


def _record_batches(path: Path) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    with pa.OSFile(str(path), "rb") as file:
        try:
            yield from pa.ipc.open_stream(file)
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pa.ipc.open_file(file)
            yield from (reader.get_batch(index) for index in range(reader.num_record_batches))


def require_unique_columns(schema: "pa.Schema", place: str) -> None:
    """Check that no name occurs twice in one row or object, of which readers keep the last in silence.

    Raises:
        DatasetError: one does; names it.
    """
    for fields in _objects(list(schema)):
        names = [field.name for field in fields]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise DatasetError(f"{place}: the column {twice!r} occurs twice; rename one")


def to_rows(batch: "pa.RecordBatch") -> Iterator[dict[str, object]]:
    """Yield the rows of a batch; floats as their own type writes them (schema checked by `require_unique_columns`)."""
    columns = [
        [_restore(value, field.type) for value in column.to_pylist()]
        if _holds_floats(field.type)
        else column.to_pylist()
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    names = batch.schema.names
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _objects(fields: "list[pa.Field[Any]]") -> "Iterator[list[pa.Field[Any]]]":
    """Yield the fields of the row and of every object inside it."""
    import pyarrow as pa

    yield fields
    for field in fields:
        children = [field.type.field(index) for index in range(field.type.num_fields)]
        if pa.types.is_struct(field.type):
            yield from _objects(children)
        else:  # the parts of a list or map are its layout, not named values
            for child in children:
                yield from _objects([child])


def _holds_floats(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _holds_floats(cast("pa.DictionaryType[Any, Any]", kind).value_type)
    return pa.types.is_floating(kind) or any(_holds_floats(kind.field(index).type) for index in range(kind.num_fields))


def _restore(value: object, kind: "pa.DataType") -> object:
    """Return a value with every float inside it as its type writes it."""
    import pyarrow as pa

    if value is None or not _holds_floats(kind):
        return value
    if pa.types.is_dictionary(kind):
        return _restore(value, cast("pa.DictionaryType[Any, Any]", kind).value_type)
    if isinstance(value, float):
        return from_storage(value, _shortest(value, kind.bit_width), kind.bit_width)
    if isinstance(value, dict):
        fields = {kind.field(index).name: kind.field(index).type for index in range(kind.num_fields)}
        return {name: _restore(inner, fields[name]) for name, inner in cast("dict[str, object]", value).items()}
    if pa.types.is_map(kind):
        types = (cast("pa.MapType[Any, Any]", kind).key_type, cast("pa.MapType[Any, Any]", kind).item_type)
        pairs = cast("list[tuple[object, object]]", value)
        return [(_restore(key, types[0]), _restore(inner, types[1])) for key, inner in pairs]
    if isinstance(value, list):
        return [_restore(inner, kind.field(0).type) for inner in cast("list[object]", value)]
    return value


def _shortest(value: float, bits: int) -> str:
    """Return the shortest decimal that a float of so many bits reads back as the value."""
    if bits == 64:
        return repr(value)
    import numpy as np

    return str(np.float32(value) if bits == 32 else np.float16(value))
