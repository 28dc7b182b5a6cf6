"""Tables of a small run, for tests of what reads and writes the store."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from schemas.tables import METRICS, RUNS, SAMPLES

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def filled(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of a table, each column that is not given filled with something of its type."""

    def value(field: "pa.Field[Any]") -> Any:
        if field.nullable:
            return None
        if pa.types.is_timestamp(field.type):
            return NOW
        if pa.types.is_nested(field.type):
            return []
        return "x" if pa.types.is_string(field.type) else 0

    return pa.Table.from_pylist([{**{field.name: value(field) for field in schema}, **row} for row in rows], schema)


def run_tables(run_id: str, experiment: str = "exp", num_samples: int = 6, **runs: Any) -> dict[str, Any]:
    """The tables of one small run, its samples out of order."""
    names = {"run_id": run_id, "experiment_name": experiment}
    rows = [{**names, "item_id": f"i{index % 3}", "repeat": index // 3, "score": 1.0} for index in range(num_samples)]
    metric = {**names, "subset": "all", "metric": "accuracy", "value": 0.5}
    return {
        "runs": filled(RUNS, [{**names, **runs}]),
        "samples": filled(SAMPLES, rows[::-1]),
        "metrics": filled(METRICS, [metric, {**metric, "subset": "a=b", "value": 0.1}]),
    }
