"""The store: whole runs or none, any reader, any name, two publishers, and what a disk may refuse."""

import multiprocessing
import os
import shutil
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from infra.ownership.staging import remove_abandoned, staging_folder
from infra.store import Store, open_store
from schemas.errors import DistributedEvaluationError, StoreError
from schemas.tables import RUNS, SAMPLES, TABLES
from tests.support.staging_folders import wait_for_owner
from tests.support.store_tables import NOW, filled, run_tables


def many_samples(item_ids: list[str]) -> pa.Table:
    """Samples of run r1, one per item, made by columns: by rows it takes longer than publishing them."""
    row = filled(SAMPLES, [{"run_id": "r1", "experiment_name": "exp", "repeat": 0}])
    samples = row.take(pa.array([0] * len(item_ids)))
    position = SAMPLES.get_field_index("item_id")
    return samples.set_column(position, SAMPLES.field(position), pa.array(item_ids))


def staged(store: Store) -> list[Path]:
    """What lies in the staging folder."""
    return list((store.root / ".staging").iterdir())


def test_a_published_run_is_read_back(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.publish("r1", "exp", run_tables("r1")) is True
    samples = store.table("samples").to_table()
    assert samples.schema.equals(SAMPLES)
    assert [(row["item_id"], row["repeat"]) for row in samples.to_pylist()] == [
        (f"i{item}", repeat) for item in range(3) for repeat in range(2)
    ]
    assert samples.schema.metadata == SAMPLES.metadata
    (run,) = store.runs()
    assert (run.run_id, run.experiment_name, run.accuracy, run.finished_at) == ("r1", "exp", 0.5, NOW)
    file = store.root / "samples" / "experiment_name=exp" / "run_id=r1" / "part-0.parquet"
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "ZSTD"
    assert staged(store) == []


def test_an_empty_store_has_empty_tables(tmp_path: Path) -> None:
    store = open_store(tmp_path / "nothing" / "yet")
    for name, schema in TABLES.items():
        assert store.table(name).to_table().equals(schema.empty_table())
    assert store.runs() == []
    assert not (tmp_path / "nothing").exists()


def test_runs_are_listed_newest_first_and_read_alone(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    for index in (1, 0, 2):
        store.publish(f"r{index}", "exp", run_tables(f"r{index}", finished_at=NOW + timedelta(days=index)))
    assert [run.run_id for run in store.runs()] == ["r2", "r1", "r0"]
    assert store.table("samples", run_id="r1").to_table().column("run_id").unique().to_pylist() == ["r1"]
    with pytest.raises(StoreError, match=r"run 'r9' is not in .*r0, r1, r2"):
        store.table("samples", run_id="r9")


NAMES = ["exp", "123", "007", "0x10", "2024-01-01", "1e5", "true", "null", "1-1-1", "99999999999"]


@pytest.mark.parametrize("names", [[name] for name in NAMES] + [["123", "exp"], ["007", "2024-01-01", "123"]])
def test_every_reader_sees_names_as_text(tmp_path: Path, names: list[str]) -> None:
    store = open_store(tmp_path)
    for index, name in enumerate(names):
        store.publish(f"2026010{index}", name, run_tables(f"2026010{index}", name))
    folder = store.root / "samples"
    pattern = f"{folder}/**/*.parquet"
    columns = "experiment_name, run_id"
    by_duckdb = [
        duckdb.sql(f"select distinct {columns} from read_parquet('{pattern}'{flag})").fetchall()
        for flag in ("", ", hive_partitioning=true", ", hive_partitioning=true, union_by_name=true")
    ]
    by_polars = [
        frame.select("experiment_name", "run_id").unique().collect().rows()
        for frame in (
            pl.scan_parquet(pattern),
            pl.scan_parquet(pattern, hive_partitioning=True),
            pl.scan_parquet(folder),
        )
    ]
    by_pyarrow = [
        [tuple(row.values()) for row in table.group_by(["experiment_name", "run_id"]).aggregate([]).to_pylist()]
        for table in (
            pads.dataset(folder).to_table(),
            pads.dataset(folder, partitioning="hive").to_table(),
            pq.read_table(folder, partitioning=None),
            store.table("samples").to_table(),
        )
    ]
    # by its default pandas makes dictionaries of the folder names, which clash with the text in the files
    frame = pd.read_parquet(folder, partitioning=None)[["experiment_name", "run_id"]].drop_duplicates()
    by_pandas = [list(frame.itertuples(index=False, name=None))]
    expected = sorted((name, f"2026010{index}") for index, name in enumerate(names))
    for found in (*by_duckdb, *by_polars, *by_pyarrow, *by_pandas):
        assert sorted(found) == expected
    assert sorted(run.experiment_name for run in store.runs()) == sorted(names)


def test_one_run_of_each_measurement_counts_and_the_others_stay(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    runs = {
        "first": {"plan_key": "a"},
        "again": {"plan_key": "a"},
        "regraded": {"plan_key": "a", "regrade_of": "first"},
        "other-model": {"plan_key": "b"},
        "other-trial": {"plan_key": "a", "trial_name": "t2"},
    }
    for hour, (run_id, columns) in enumerate(runs.items()):
        store.publish(run_id, "exp", run_tables(run_id, **columns, finished_at=NOW + timedelta(hours=hour)))
    store.publish("other-experiment", "exp2", run_tables("other-experiment", "exp2", plan_key="a"))
    assert {run.run_id for run in store.latest_runs()} == {"regraded", "other-model", "other-trial", "other-experiment"}
    assert {run.run_id: run.superseded_by for run in store.runs() if run.superseded_by} == {
        "first": "regraded",
        "again": "regraded",
    }
    folder = store.root / "runs"
    by_duckdb = duckdb.sql(
        f"select run_id from read_parquet('{folder}/**/*.parquet') qualify row_number() over (partition by "
        "experiment_name, trial_name, plan_key order by finished_at desc, run_id desc) = 1"
    ).fetchall()
    assert {row[0] for row in by_duckdb} == {run.run_id for run in store.latest_runs()}


def test_ordinary_names_need_no_part_without_rows(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.publish("r1", "exp", run_tables("r1"))
    assert [path.name for path in (store.root / "samples").iterdir()] == ["experiment_name=exp"]


@pytest.mark.parametrize("landed", [(), ("samples",), ("metrics",), ("samples", "metrics")])
def test_a_run_cut_off_between_renames_is_invisible_until_repeated(tmp_path: Path, landed: tuple[str, ...]) -> None:
    store = open_store(tmp_path)
    store.publish("r1", "exp", run_tables("r1", num_samples=3))
    for file in store.root.glob("*/experiment_name=exp/run_id=r1/part-0.parquet"):
        if file.relative_to(store.root).parts[0] not in landed:
            file.unlink()
    assert store.runs() == []
    assert all(store.table(name).count_rows() == 0 for name in TABLES)
    assert store.publish("r1", "exp", run_tables("r1")) is True
    assert [store.table(name).count_rows() for name in ("runs", "samples", "metrics")] == [1, 6, 2]


def _publish_large(root: Path) -> None:
    samples = many_samples([f"i{index}" for index in range(30_000)])
    Store(root).publish("r1", "exp", {**run_tables("r1"), "samples": samples})


@pytest.mark.parametrize("delay_s", [0.02, 0.1, 0.25])
def test_a_publisher_killed_at_any_moment_leaves_all_or_nothing(tmp_path: Path, delay_s: float) -> None:
    store = open_store(tmp_path)
    context = multiprocessing.get_context("fork")
    publisher = context.Process(target=_publish_large, args=(store.root,))
    publisher.start()
    wait_for_owner(store.root / ".staging", publisher)
    time.sleep(delay_s)
    publisher.kill()
    publisher.join()
    assert store.table("samples").count_rows() == 30_000 * len(store.runs())
    store.publish("r1", "exp", run_tables("r1"))
    assert len(store.runs()) == 1
    assert staged(store) == []


def test_publishing_again_leaves_a_visible_run_as_it_is(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.publish("r1", "exp", run_tables("r1"))
    assert store.publish("r1", "exp", run_tables("r1", num_samples=3)) is False
    assert store.table("samples").count_rows() == 6


def _publish_many(root: Path, publisher: int) -> None:
    for index in range(8):
        run_id = f"p{publisher}-{index}"
        experiment = f"exp{index % 2}"
        Store(root).publish(run_id, experiment, run_tables(run_id, experiment))


def test_publishers_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    context = multiprocessing.get_context("fork")
    publishers = [context.Process(target=_publish_many, args=(store.root, number)) for number in range(3)]
    for publisher in publishers:
        publisher.start()
    while any(publisher.is_alive() for publisher in publishers):
        # whatever is visible at any moment is whole
        for run in store.runs():
            assert store.table("samples", run_id=run.run_id).count_rows() == 6
            assert run.accuracy == 0.5
    assert [publisher.exitcode for publisher in publishers] == [0, 0, 0]
    assert len(store.runs()) == 24
    assert staged(store) == []


def _hold_staging(parent: Path, ready: Any) -> None:
    with staging_folder(parent) as folder:
        (folder / "half").write_bytes(b"half a table")
        ready.set()
        time.sleep(60)


def test_what_a_killed_publisher_left_is_removed_and_a_living_one_is_let_be(tmp_path: Path) -> None:
    parent = tmp_path / ".staging"
    context = multiprocessing.get_context("fork")
    holders = []
    for _ in range(2):
        ready = context.Event()
        holder = context.Process(target=_hold_staging, args=(parent, ready))
        holder.start()
        assert ready.wait(30)
        holders.append(holder)
    os.kill(holders[0].pid or 0, signal.SIGKILL)
    holders[0].join()
    assert remove_abandoned(parent) == 1
    assert len(list(parent.glob("*/half"))) == 1
    os.kill(holders[1].pid or 0, signal.SIGKILL)
    holders[1].join()
    assert remove_abandoned(parent) == 1
    assert remove_abandoned(parent) == 0


def _die_over_removal(root: Path) -> None:
    whole = shutil.rmtree

    def half(path: Path, *, ignore_errors: bool) -> None:
        if not Store(root).runs():
            whole(path, ignore_errors=ignore_errors)
            return
        (path / "owner.json").unlink()
        os._exit(9)

    shutil.rmtree = half
    Store(root).publish("r1", "exp", run_tables("r1"))


def test_a_publisher_killed_over_its_clean_up_leaves_it_to_the_next(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    publisher = multiprocessing.get_context("fork").Process(target=_die_over_removal, args=(store.root,))
    publisher.start()
    publisher.join()
    assert publisher.exitcode == 9
    (left,) = staged(store)
    assert left.name.startswith(".removed-")
    assert store.publish("r1", "exp", run_tables("r1")) is False
    assert staged(store) == []


def test_a_folder_without_an_owner_goes_by_age(tmp_path: Path) -> None:
    (tmp_path / "strange").mkdir()
    assert remove_abandoned(tmp_path) == 0
    assert remove_abandoned(tmp_path, now=time.time() + 8 * 24 * 3600) == 1
    assert remove_abandoned(tmp_path / "absent") == 0


def test_an_older_file_is_read_with_nulls(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.publish("r1", "exp", run_tables("r1"))
    file = store.root / "samples" / "experiment_name=exp" / "run_id=r1" / "part-0.parquet"
    old = pq.ParquetFile(file).read()
    old = old.drop_columns(["entropy", "reward"]).append_column("gone", pa.array(["x"] * 6))
    pq.write_table(old.set_column(9, "repeat", old.column("repeat").cast(pa.int16())), file)
    samples = store.table("samples").to_table()
    assert samples.schema.equals(SAMPLES)
    assert samples.column("entropy").null_count == 6
    assert samples.column("repeat").to_pylist() == [0, 1] * 3


@pytest.mark.parametrize("kind", ["table", "path", "reader"])
def test_any_source_gives_the_same_file(tmp_path: Path, kind: str) -> None:
    tables = run_tables("r1")
    ordered = tables["samples"].sort_by([("item_id", "ascending"), ("repeat", "ascending")])
    pq.write_table(tables["samples"], tmp_path / "samples.parquet")
    sources = {"table": tables["samples"], "path": tmp_path / "samples.parquet", "reader": ordered.to_reader(2)}
    store = open_store(tmp_path)
    store.publish("r1", "exp", {**tables, "samples": sources[kind]})
    assert store.table("samples").to_table().equals(ordered)


def test_many_rows_are_sorted_in_row_groups(tmp_path: Path) -> None:
    samples = many_samples([f"i{(index * 7919) % 20_000:05}" for index in range(20_000)])
    store = open_store(tmp_path)
    store.publish("r1", "exp", {**run_tables("r1"), "samples": samples})
    file = pq.ParquetFile(store.root / "samples" / "experiment_name=exp" / "run_id=r1" / "part-0.parquet")
    assert file.metadata.num_row_groups == 3
    assert file.read(columns=["item_id"]).column(0).to_pylist() == [f"i{index:05}" for index in range(20_000)]


@pytest.mark.parametrize(
    ("run_id", "experiment", "change", "error", "message"),
    [
        ("../r1", "exp", {}, StoreError, "run_id must be letters"),
        ("r1", "a/b", {}, StoreError, "experiment_name must be letters"),
        ("r1", "", {}, StoreError, "got ''"),
        ("r1", "exp", {"weather": SAMPLES.empty_table()}, StoreError, "'weather' does not exist"),
        ("r1", "exp", {"runs": RUNS.empty_table()}, DistributedEvaluationError, "one row in runs, got 0"),
        ("r1", "exp", {"samples": pa.table({"x": [1]})}, StoreError, "'run_id' is missing"),
        ("r1", "other", {}, DistributedEvaluationError, "experiment_name 'exp' among those of 'other'"),
        ("r2", "exp", {}, DistributedEvaluationError, "run_id 'r1' among those of 'r2'"),
    ],
)
def test_what_cannot_be_a_run_is_refused(
    tmp_path: Path, run_id: str, experiment: str, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    store = open_store(tmp_path)
    with pytest.raises(error, match=message):
        store.publish(run_id, experiment, {**run_tables("r1"), **change})
    assert store.runs() == []
    assert not list(store.root.glob("[a-z]*/**/*.parquet"))


def test_a_run_needs_its_runs_row_and_a_table_its_name(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="'runs' is missing"):
        open_store(tmp_path).publish("r1", "exp", {"samples": run_tables("r1")["samples"]})
    with pytest.raises(StoreError, match="'sample' does not exist; the store has runs, samples"):
        open_store(tmp_path).table("sample")


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file"):
        open_store(tmp_path / "file")
    with pytest.raises(StoreError, match=r"cannot write .*cluster.fileroot"):
        open_store(tmp_path / "file" / "below").check_writable()
    with pytest.raises(StoreError, match="cannot write"):
        open_store("/proc/milepost").check_writable()
    with pytest.raises(StoreError, match=r"MiB free, .* are needed"):
        open_store(tmp_path).check_writable(min_free_bytes=2**62)
    open_store(tmp_path).check_writable()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="cannot write"):
            open_store(tmp_path).check_writable()
    finally:
        tmp_path.chmod(0o700)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.publish("r1", "exp", run_tables("r1"))
    (store.root / "runs" / "experiment_name=exp" / "run_id=r1" / "part-0.parquet").write_bytes(b"torn")
    with pytest.raises(StoreError, match="cannot be read"):
        store.runs()
