"""Writing one Parquet file of the store: its schema, its order, its row groups, in bounded memory.

Owns how rows become a file; must not know where the file goes. A table with item_id and repeat is sorted by them, so
that the same samples give the same file whatever the order in which they were made, and a reader that asks for one item
skips most row groups. What does not fit in memory is sorted through buckets on disk.
"""

import io
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

import numpy as np
import pyarrow as pa

from infra.arrays import IntArray
from schemas.tables import conform

if TYPE_CHECKING:
    import pyarrow.parquet as pq

TableSource: TypeAlias = "pa.Table | Path | pa.RecordBatchReader"
"""Rows in memory, in one Parquet file, or coming as batches; the last are kept in the order in which they come."""


_SORT_KEY: Final = ("item_id", "repeat")
_PLACE: Final = "__place__"
_GROUP_ROWS: Final = 8_192
"""Rows of a row group and of a batch: 32 MB of prompts and completions of 4 kB."""
_GROUP_BYTES: Final = 64 * 2**20
"""A stream's row group ends earlier when its rows are this large together."""
_MAX_BUCKETS: Final = 32
"""Buckets while sorting. Each batch is dealt into all of them, so their number must not grow with the rows; a million
rows make buckets of 31,250, of which one is held at a time."""


def write_table_file(path: Path, source: TableSource, schema: pa.Schema) -> int:
    """Write `source` to `path` in `schema`, zstd-compressed, and return the number of rows.

    `path` must not be read by anybody yet; buckets of the sort are made beside it and removed.

    Raises:
        StoreError: a column is missing or of another type.
        OSError: the disk refused.
    """
    with open_parquet_writer(path, schema) as writer:
        if isinstance(source, pa.RecordBatchReader) or not set(_SORT_KEY) <= set(_column_names(source)):
            return _write_stream(writer, _batches(source), schema)
        rank = _rank(source)
        if (np.diff(rank) > 0).all():
            return _write_stream(writer, _batches(source), schema)
        return _write_sorted(writer, source, schema, rank, path)


def open_parquet_writer(target: "Path | BinaryIO", schema: pa.Schema) -> "pq.ParquetWriter":
    """Return a writer of zstd-compressed Parquet.

    Log-probabilities hardly repeat: a dictionary of them takes twice the room of the numbers, so they have none.
    """
    import pyarrow.parquet as pq

    with_dictionary: Any = _repeating_columns(schema)  # the stubs know True and False alone
    return pq.ParquetWriter(target, schema, compression="zstd", use_dictionary=with_dictionary)


@cache
def _repeating_columns(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns as Parquet names them, but for lists of 32-bit floats."""
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(schema.empty_table(), file)
    columns: Any = pq.ParquetFile(file).schema
    paths = [str(columns.column(number).path) for number in range(len(columns))]
    unique = {field.name for field in schema if pa.types.is_list(field.type) and field.type.value_type == pa.float32()}
    return [path for path in paths if path.partition(".")[0] not in unique]


def _column_names(source: "pa.Table | Path") -> list[str]:
    if isinstance(source, pa.Table):
        return source.column_names
    import pyarrow.parquet as pq

    return pq.read_schema(source).names


def _batches(source: TableSource) -> Iterator[pa.Table]:
    if isinstance(source, pa.Table):
        yield from (pa.Table.from_batches([batch]) for batch in source.to_batches(max_chunksize=_GROUP_ROWS))
    elif isinstance(source, pa.RecordBatchReader):
        yield from (pa.Table.from_batches([batch]) for batch in source)
    else:
        import pyarrow.parquet as pq

        with pq.ParquetFile(source) as file:
            yield from (pa.Table.from_batches([batch]) for batch in file.iter_batches(batch_size=_GROUP_ROWS))


def _write_stream(writer: "pq.ParquetWriter", batches: Iterator[pa.Table], schema: pa.Schema) -> int:
    waiting: list[pa.Table] = []
    num_rows = num_waiting = num_bytes = 0
    for batch in batches:
        waiting.append(conform(batch, schema))
        num_waiting += batch.num_rows
        num_bytes += batch.nbytes
        if num_waiting >= _GROUP_ROWS or num_bytes >= _GROUP_BYTES:
            writer.write_table(pa.concat_tables(waiting))
            num_rows += num_waiting
            waiting, num_waiting, num_bytes = [], 0, 0
    if num_waiting:
        writer.write_table(pa.concat_tables(waiting))
    return num_rows + num_waiting


def _rank(source: "pa.Table | Path") -> IntArray:
    """Return the place of each row in the sorted order."""
    if isinstance(source, pa.Table):
        keys = source.select(list(_SORT_KEY))
    else:
        import pyarrow.parquet as pq

        with pq.ParquetFile(source) as file:
            keys = file.read(columns=list(_SORT_KEY))
    import pyarrow.compute as pc

    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in _SORT_KEY]).to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank


def _write_sorted(
    writer: "pq.ParquetWriter", source: "pa.Table | Path", schema: pa.Schema, rank: IntArray, path: Path
) -> int:
    """Deal the rows into buckets of consecutive ranks on disk, then sort and write one bucket after the other."""
    bucket_rows = max(_GROUP_ROWS, -(-len(rank) // _MAX_BUCKETS))
    names = [path.with_name(f"{path.name}.bucket-{number}") for number in range(-(-len(rank) // bucket_rows))]
    try:
        _deal(_batches(source), names, schema, rank, bucket_rows)
        for name in names:
            with pa.OSFile(str(name), "rb") as file, pa.ipc.open_stream(file) as reader:
                bucket = reader.read_all()
            places = bucket.column(_PLACE).to_numpy()
            writer.write_table(bucket.drop_columns(_PLACE).take(np.argsort(places)), row_group_size=_GROUP_ROWS)
            name.unlink()
    finally:
        for name in names:
            name.unlink(missing_ok=True)
    return len(rank)


def _deal(batches: Iterator[pa.Table], names: list[Path], schema: pa.Schema, rank: IntArray, bucket_rows: int) -> None:
    """Write each row to the bucket that its rank falls into, its rank beside it."""
    bucket_schema = schema.append(pa.field(_PLACE, pa.int64()))
    # Text shrinks to a third at the speed of the disk: the buckets stand beside the file until it is written.
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with ExitStack() as stack:
        files = [stack.enter_context(pa.OSFile(str(name), "wb")) for name in names]
        writers = [stack.enter_context(pa.ipc.new_stream(file, bucket_schema, options=options)) for file in files]
        start = 0
        for batch in batches:
            places = rank[start : start + batch.num_rows]
            start += batch.num_rows
            order = np.argsort(places)
            bucket = places[order] // bucket_rows
            rows = conform(batch, schema).append_column(bucket_schema.field(_PLACE), pa.array(places)).take(order)
            for first, end in pairwise([*np.flatnonzero(np.diff(bucket, prepend=-1)).tolist(), len(order)]):
                writers[int(bucket[first])].write_table(rows.slice(first, end - first))
