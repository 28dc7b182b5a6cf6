"""The lengths of earlier answers balance the next run, and are missed without harm."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.store import open_store
from schemas.tables import METRICS, RUNS, SAMPLES
from tasks.inference.planning.response_lengths import earlier_lengths
from tests.support.store_tables import filled


def publish(fileroot: Path, run_id: str, *, day: int, lengths: list[tuple[str, int]], dataset: str = "toy") -> None:
    names = {"run_id": run_id, "experiment_name": "exp"}
    finished_at = datetime(2026, 1, day, tzinfo=UTC)
    samples = [
        {**names, "item_id": item_id, "repeat": repeat, "num_completion_tokens": length}
        for repeat, (item_id, length) in enumerate(lengths)
    ]
    tables = {
        "runs": filled(RUNS, [{**names, "dataset": dataset, "finished_at": finished_at}]),
        "samples": filled(SAMPLES, samples),
        "metrics": filled(METRICS, [{**names, "subset": "all", "metric": "accuracy", "value": 0.5}]),
    }
    open_store(fileroot).publish(run_id, "exp", tables)


def test_the_last_run_on_that_dataset_tells_the_mean_length_of_each_item(tmp_path: Path) -> None:
    publish(tmp_path, "r1", day=1, lengths=[("a", 1000)])
    publish(tmp_path, "r2", day=2, lengths=[("a", 10), ("a", 20), ("b", 7), ("c", 0)])
    publish(tmp_path, "r3", day=3, lengths=[("x", 5)], dataset="other")
    assert earlier_lengths(open_store(tmp_path), "toy") == {"a": 15.0, "b": 7.0}, "c was never answered"


def test_without_an_earlier_run_nothing_is_known(tmp_path: Path) -> None:
    assert earlier_lengths(open_store(tmp_path), "toy") == {}


@pytest.mark.parametrize("table", ["runs", "samples"])
def test_an_earlier_run_that_cannot_be_read_costs_the_balance_alone(
    tmp_path: Path, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path, "r1", day=1, lengths=[("a", 10)])
    (path,) = (tmp_path / "store" / table).rglob("*.parquet")
    path.write_bytes(b"no parquet")
    assert earlier_lengths(open_store(tmp_path), "toy") == {}
    assert "not balanced" in caplog.text
