"""The file work.parquet: which samples a worker is to make, in which order."""

from collections.abc import Sequence
from typing import cast

import pyarrow as pa

from schemas.identity import SampleKey
from schemas.tables import WORK_SCHEMA


def work_table(keys: Sequence[SampleKey]) -> pa.Table:
    """Return WORK_SCHEMA rows."""
    repeats = pa.array([key.repeat for key in keys], pa.int32())
    return pa.table({"item_id": [key.item_id for key in keys], "repeat": repeats}, schema=WORK_SCHEMA)


def sample_keys(rows: pa.Table | pa.RecordBatch) -> list[SampleKey]:
    """Return the names in rows that have item_id and repeat."""
    item_ids = cast("list[str]", rows.column("item_id").to_pylist())
    repeats = cast("list[int]", rows.column("repeat").to_pylist())
    return list(map(SampleKey, item_ids, repeats))  # whole columns: a dict per row takes three times as long
