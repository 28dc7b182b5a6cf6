"""Every kind of local file yields the same rows, and says where it is broken."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.datasets.rows import SourceRow
from infra.datasets.sources.csv_records import read_csv
from infra.datasets.sources.json_document import read_json_document
from infra.datasets.sources.jsonl import read_jsonl
from infra.datasets.sources.parquet import read_parquet
from schemas.errors import DatasetError

ROWS = [
    {"question": "One line\u2028and another\u2029, a third\u0085, a fourth\x0b", "answer": "1,000"},
    {"question": 'He said "2, 3"\nand left', "answer": ""},
    {"question": "\ufeffnot a mark here", "answer": "ü"},
]
# Any text but halves of surrogate pairs, which UTF-8 cannot hold; characters that some readers end a line at often.
TEXT = st.text(
    st.one_of(st.characters(exclude_categories=("Cs",)), st.sampled_from("\u2028\u2029\x85\x0b\x0c\r\n\x1e"))
)


def values(rows: Sequence[SourceRow]) -> list[dict[str, object]]:
    assert [row.problem for row in rows] == [""] * len(rows)
    return [dict(row.values) for row in rows]


def test_all_file_formats_yield_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(json.dumps(row, ensure_ascii=False).encode() for row in ROWS))
    (tmp_path / "a.json").write_text(json.dumps(ROWS), encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps({"version": 1, "data": ROWS}), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["question", "answer"])
        writer.writeheader()
        writer.writerows(ROWS)
    assert values(list(read_jsonl(tmp_path / "a.jsonl"))) == ROWS
    assert values(list(read_json_document(tmp_path / "a.json"))) == ROWS
    assert values(list(read_json_document(tmp_path / "b.json"))) == ROWS
    assert values(list(read_parquet(tmp_path / "a.parquet"))) == ROWS
    assert values(list(read_csv(tmp_path / "a.csv"))) == ROWS


@given(rows=st.lists(st.fixed_dictionaries({"q": TEXT, "a": TEXT}), max_size=5), ascii_only=st.booleans())
def test_any_text_comes_back_from_json_lines(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]], ascii_only: bool
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "x.jsonl"
    path.write_bytes(b"".join(json.dumps(row, ensure_ascii=ascii_only).encode() + b"\n" for row in rows))
    read = list(read_jsonl(path))
    assert values(read) == rows
    assert [row.number for row in read] == list(range(1, len(rows) + 1))


def test_json_lines_tolerates_a_byte_order_mark_crlf_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\r\n   \n')
    assert [(row.number, row.values) for row in read_jsonl(path)] == [(1, {"a": 1}), (3, {"a": 2})]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": "cut he', "ends in the middle"),
        (b'{"a": 1}{"a": 2}\n', "is not JSON"),
        (b"[1, 2]\n", "expected an object"),
        (b'{"a": 1, "a": 2}\n', "'a' occurs twice"),
        (b'{"a": "\xff"}\n', "utf-8"),
        (b'{"a": ' + b"[" * 100_000 + b"\n", "is not JSON"),
        (b'{"a": ' + b"9" * 10_000 + b"}\n", "is not JSON"),
    ],
)
def test_a_broken_line_is_named_and_its_neighbours_still_read(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 0}\n' + line)
    good, bad = read_jsonl(path)
    assert (good.number, good.values, good.problem) == (1, {"a": 0}, "")
    assert bad.number == 2
    assert reason in bad.problem


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[{"a": 1}]\n[{"a": 2}]', "is not JSON"),
        ('{"a": 1} {"a": 2}', "is not JSON"),
        ('[{"a": 1}', "is not JSON"),
        ('{"rows": []}', "'rows'"),
        ("7", "holds 7"),
        ('[{"a": 1, "a": 2}]', "occurs twice"),
    ],
)
def test_a_json_document_that_is_no_list_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DatasetError, match=reason):
        list(read_json_document(path))


def test_csv_names_a_ragged_record_and_refuses_a_cut_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('q,a\n"one\ntwo",1\nthree\n\nfour,4\n', encoding="utf-8")
    first, second, third = read_csv(path)
    assert first.values == {"q": "one\ntwo", "a": "1"}
    assert (second.number, second.problem) == (2, "has 1 fields, expected 2 as the header names")
    assert (third.number, third.values) == (3, {"q": "four", "a": "4"})
    path.write_text('q,a\nx,1\n"cut her', encoding="utf-8")
    with pytest.raises(DatasetError, match="row 2 is not CSV"):
        list(read_csv(path))
    path.write_text("q,a,q\nx,1,y\n", encoding="utf-8")
    with pytest.raises(DatasetError, match="'q' twice"):
        list(read_csv(path))
    path.write_bytes(b"q,a\nx,\xff\n")
    with pytest.raises(DatasetError, match="is not UTF-8"):
        list(read_csv(path))


def test_csv_takes_a_field_of_a_megabyte(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"q,a\n{'x' * 1_000_000},1\n", encoding="utf-8")
    assert [len(str(row.values["q"])) for row in read_csv(path)] == [1_000_000]


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        list(read_parquet(path))
