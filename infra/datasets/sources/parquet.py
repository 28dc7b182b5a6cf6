"""A Parquet file, read batch by batch."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from infra.datasets.rows import SourceRow
from infra.datasets.sources.arrow_rows import BATCH_ROWS, number_rows, require_unique_columns
from infra.datasets.sources.regular_file import require_regular_file

if TYPE_CHECKING:
    import pyarrow as pa


def read_parquet(path: Path) -> Iterator[SourceRow]:
    """Yield the file's rows.

    Raises:
        DatasetError: the file is no Parquet, damaged, has a column twice, or a value that Python has no form for.
    """
    require_regular_file(path)
    yield from number_rows(_record_batches(path), path, "Parquet")


def _record_batches(path: Path) -> "Iterator[pa.RecordBatch]":
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        require_unique_columns(file.schema_arrow, str(path))
        yield from file.iter_batches(batch_size=BATCH_ROWS)
