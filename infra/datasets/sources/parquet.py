"""A Parquet file, read batch by batch."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from infra.datasets.rows import SourceRow
from schemas.errors import DatasetError

_BATCH_ROWS = 4096
"""Bounds memory beside the items: a few MB of Python objects at a time."""


def read_parquet(path: Path) -> Iterator[SourceRow]:
    """Yield the file's rows.

    Raises:
        DatasetError: the file is no Parquet, or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for values in cast("list[dict[str, object]]", batch.to_pylist()):
                    number += 1
                    yield SourceRow(number, values)
    except (pa.ArrowException, OSError) as exc:
        raise DatasetError(f"{path}: cannot be read as Parquet after row {number}: {exc}") from exc
