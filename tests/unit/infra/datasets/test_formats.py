"""Every file format gives the gold that its bytes state, or refuses the row by name."""

import csv
import json
import os
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.datasets import load_dataset
from infra.datasets.sources.arrow_rows import BATCH_ROWS
from schemas.dataset import LoadedDataset
from schemas.errors import DatasetError
from schemas.valid_dataset import ColumnMapping, ValidDatasetConfig

COLUMNS = ColumnMapping(prompt="q", gold="a", id="id", subsets=("k",))
GOLD_ONLY = ColumnMapping(prompt="q", gold="a")
TEXTS = (
    "NA", "None", "null", "nan", "True", "001", "01", "1", "1.0", "1e5", "10e4", "100000", "2024-05-17", "inf", "-0",
    "12345678901234567", "12345678901234568", "1234567890123456789012", "0.12345678901234567890123", "1_000",
)  # fmt: skip
"""Texts that readers take for a gap, a truth value, a date or a number."""
ROWS = [{"q": f"p{number}", "a": text, "id": text, "k": text} for number, text in enumerate(TEXTS)]


def load(path: Path, columns: ColumnMapping = COLUMNS, **settings: Any) -> LoadedDataset:
    config = ValidDatasetConfig(path=str(path), columns=columns, **settings)
    return load_dataset(config, seed=1, check_golds=lambda golds: [None] * len(golds))


def write_jsonl(path: Path, rows: Sequence[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_json(path: Path, rows: Sequence[dict[str, str]]) -> None:
    path.write_text(json.dumps(list(rows)), encoding="utf-8")


def write_csv(path: Path, rows: Sequence[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path: Path, rows: Sequence[dict[str, str]]) -> None:
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def write_arrow(path: Path, rows: Sequence[dict[str, str]]) -> None:
    table = pa.Table.from_pylist(list(rows))
    with path.open("wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[Path, Sequence[dict[str, str]]], None]] = {
    "x.jsonl": write_jsonl,
    "lines.json": write_jsonl,
    "x.json": write_json,
    "x.csv": write_csv,
    "x.parquet": write_parquet,
    "x.arrow": write_arrow,
}


@pytest.mark.parametrize("name", WRITERS)
def test_text_stays_text_in_every_format(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, ROWS)
    items = load(tmp_path / name).items
    assert [item.gold for item in items] == list(TEXTS)
    assert [item.item_id for item in items] == list(TEXTS)
    assert [item.subsets["k"] for item in items] == list(TEXTS)


@pytest.mark.parametrize(
    ("number", "gold"),
    [
        ("7.50", "7.5"),
        ("1e5", "100000"),
        ("12345678901234567", "12345678901234567"),
        ("1234567890123456789012", "1234567890123456789012"),
        ("9007199254740993.0", "9007199254740993"),
        ("0.12345678901234567890123", "0.12345678901234567890123"),
        ("1e23", "1" + "0" * 23),
        ("1152921504606846976", str(2**60)),
        ("1e-320", "0." + "0" * 319 + "1"),
        ("1e-330", "0." + "0" * 329 + "1"),
        ("1e999999999", "expected an exponent of at most 400"),
        ("-1e-999999999", "expected an exponent of at most 400"),
        ("1e99999999999999999999", "has an exponent that cannot be read"),
        ("NaN", "is nan, expected"),
        ("Infinity", "is inf, expected"),
        ("true", "is True, expected"),
    ],
)
@pytest.mark.parametrize("template", ['{"q": "p", "a": %s}\n', '[{"q": "p", "a": %s}]'])
def test_json_numbers_keep_their_digits(tmp_path: Path, template: str, number: str, gold: str) -> None:
    path = tmp_path / ("x.json" if template.startswith("[") else "x.jsonl")
    path.write_text(template % number, encoding="utf-8")
    if gold.startswith(("is", "has", "expected")):
        with pytest.raises(DatasetError, match=gold):
            load(path, GOLD_ONLY)
    else:
        assert load(path, GOLD_ONLY).items[0].gold == gold


@pytest.mark.parametrize(
    ("column", "gold"),
    [
        (pa.array([0.1], pa.float32()), "0.1"),
        (pa.array([0.1], pa.float64()), "0.1"),
        (pa.array([np.float16(0.1)], pa.float16()), "0.1"),
        (pa.array([1e-7], pa.float32()), "0.0000001"),
        (pa.array([18.0], pa.float32()), "18"),
        (pa.array([2**53 + 1], pa.int64()), str(2**53 + 1)),
        (pa.array([2**64 - 1], pa.uint64()), str(2**64 - 1)),
        (pa.array([Decimal("12345678901234567890.5")], pa.decimal128(30, 2)), "12345678901234567890.5"),
        (pa.array(["001"], pa.large_string()), "001"),
        (pa.array(["001"]).dictionary_encode(), "001"),
        (pa.array([2.0**60], pa.float64()), "store it as an integer"),
        (pa.array([2.0**53], pa.float64()), "store it as an integer"),
        (pa.array([2.0**24], pa.float32()), "store it as an integer"),
        (pa.array([np.float16(2048)], pa.float16()), "store it as an integer"),
        (pa.array([0], pa.date32()), "expected text or a number"),
        (pa.array([1], pa.timestamp("us")), "expected text or a number"),
        (pa.array([b"\xff"], pa.binary()).view(pa.string()), "cannot be read as Parquet after row 0"),
    ],
)
def test_parquet_values_are_read_as_their_own_type_writes_them(
    tmp_path: Path, column: "pa.Array[Any]", gold: str
) -> None:
    pq.write_table(pa.table({"q": ["p"], "a": column}), tmp_path / "x.parquet")
    if gold.startswith(("store", "expected", "cannot")):
        with pytest.raises(DatasetError, match=gold):
            load(tmp_path / "x.parquet", GOLD_ONLY)
    else:
        assert load(tmp_path / "x.parquet", GOLD_ONLY).items[0].gold == gold


@pytest.mark.parametrize(
    "table",
    [
        pa.Table.from_arrays([pa.array(["p"]), pa.array(["1"]), pa.array(["2"])], names=["q", "a", "a"]),
        pa.table({"q": ["p"], "a": pa.StructArray.from_arrays([pa.array(["1"]), pa.array(["2"])], names=["a", "a"])}),
    ],
)
def test_a_column_that_occurs_twice_is_refused(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(DatasetError, match="the column 'a' occurs twice"):
        load(tmp_path / "x.parquet", GOLD_ONLY)


@pytest.mark.parametrize("name", WRITERS)
def test_only_regular_files_are_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    (tmp_path / f"link{Path(name).suffix}").symlink_to("/dev/zero")
    with pytest.raises(DatasetError, match="is a FIFO, expected a regular file"):
        load(tmp_path / name)
    with pytest.raises(DatasetError, match="is a device, expected a regular file"):
        load(tmp_path / f"link{Path(name).suffix}")


def test_a_folder_with_a_fifo_is_refused(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "test.jsonl", ROWS)
    os.mkfifo(tmp_path / "README.md")
    with pytest.raises(DatasetError, match=r"README\.md is a FIFO"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["test-00000-of-00002.jsonl", "test-00001-of-00002.jsonl"], ""),
        (["test-00001-of-00002.jsonl", "test-00002-of-00002.jsonl"], ""),
        (["test-00000-of-00002-0a1b.jsonl", "test-00001-of-00002-2c3d.jsonl"], ""),
        (["test-00000-of-00001.jsonl", "train-00001-of-00002.jsonl"], ""),
        (
            ["test-00000-of-00003.jsonl", "test-00002-of-00003.jsonl"],
            "1 of the 3 files .* the first is test-00001-of-00003",
        ),
        (["test-00001-of-00003.jsonl"], "2 of the 3 files .* the first is test-00000-of-00003"),
        (["data/test-00000-of-00002-0a1b.jsonl"], "the first is test-00001-of-00002"),
    ],
)
def test_a_split_of_which_a_file_is_missing_is_refused(tmp_path: Path, names: list[str], missing: str) -> None:
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_jsonl(tmp_path / name, [{"q": f"p{number}", "a": "1", "id": str(number), "k": "x"}])
    if missing:
        with pytest.raises(DatasetError, match=missing):
            load(tmp_path)
    else:
        assert len(load(tmp_path).items) == sum("test-" in name for name in names)


def test_a_folder_with_links_to_nowhere_is_read(tmp_path: Path) -> None:
    """git-annex and DVC leave them for files that were not fetched."""
    write_jsonl(tmp_path / "test.jsonl", ROWS)
    for name in ("train.jsonl", "figures", "README.md"):
        (tmp_path / name).symlink_to(tmp_path / "nowhere" / name)
    assert load(tmp_path) == load(tmp_path / "test.jsonl")


def test_a_parquet_file_is_read_no_further_than_asked(tmp_path: Path) -> None:
    text = "x" * 1_000_000
    indices = pa.array([0] * 8192, pa.int32())
    table = pa.table({"q": pa.DictionaryArray.from_arrays(indices, pa.array([text])), "a": list(map(str, range(8192)))})
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd", store_schema=False)
    before = pa.default_memory_pool().max_memory() or 0
    assert len(load(tmp_path / "x.parquet", GOLD_ONLY, limit=2).items) == 2
    assert (pa.default_memory_pool().max_memory() or 0) - before < 4 * BATCH_ROWS * len(text)
