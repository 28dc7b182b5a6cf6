"""A journal keeps every finished sample, whatever cuts its writer down, and tells damage from a torn end."""

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import StoreError
from schemas.inference import SampleRecord
from schemas.tables import JOURNAL_SCHEMA
from tasks.inference.exchange.journal import (
    JournalFollower,
    JournalWriter,
    finished_samples,
    read_journal,
    read_tables,
)
from tests.support.sample_records import record


def write(folder: Path, count: int, *, segment_size: int, close: bool) -> list[SampleRecord]:
    writer = JournalWriter(folder, segment_size=segment_size)
    records = [record(number) for number in range(count)]
    for each in records:
        writer.append(each)
    if close:
        writer.close()
    return records


def new_records(follower: JournalFollower) -> list[SampleRecord]:
    return [SampleRecord.model_validate(row) for table in follower.new_tables() for row in table.to_pylist()]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "segments").iterdir())


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
def test_every_record_comes_back_in_order_and_unchanged(tmp_path: Path, count: int, close: bool) -> None:
    records = write(tmp_path, count, segment_size=4, close=close)
    assert list(read_journal(tmp_path)) == records
    assert new_records(JournalFollower(tmp_path)) == records
    assert finished_samples([tmp_path]) == {(each.item_id, each.repeat) for each in records}


def test_full_segments_become_parquet_and_the_last_stays_lines_until_closed(tmp_path: Path) -> None:
    write(tmp_path, 9, segment_size=4, close=False)
    assert names(tmp_path) == ["00000.parquet", "00001.parquet", "00002.jsonl"]
    table = pq.read_table(tmp_path / "segments" / "00000.parquet")
    assert table.schema.equals(JOURNAL_SCHEMA, check_metadata=True)


def test_closing_leaves_no_lines_and_no_empty_segment(tmp_path: Path) -> None:
    write(tmp_path, 8, segment_size=4, close=True)
    assert names(tmp_path) == ["00000.parquet", "00001.parquet"]


def test_a_record_can_be_read_before_the_writer_is_closed_or_synced(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    writer.append(record(1))
    assert list(read_journal(tmp_path)) == [record(1)]


def test_a_later_writer_leaves_earlier_segments_alone(tmp_path: Path) -> None:
    first = write(tmp_path, 3, segment_size=4, close=False)
    second = write(tmp_path, 5, segment_size=4, close=False)
    assert list(read_journal(tmp_path)) == first + second
    assert new_records(JournalFollower(tmp_path)) == first + second


@settings(max_examples=60, deadline=None)
@given(data=st.data(), count=st.integers(1, 6))
def test_a_cut_at_any_byte_loses_the_torn_record_alone(data: st.DataObject, count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = write(folder, count, segment_size=100, close=False)
        path = folder / "segments" / "00000.jsonl"
        content = path.read_bytes()
        cut = data.draw(st.integers(0, len(content)))
        path.write_bytes(content[:cut])
        whole = content[:cut].count(b"\n")
        assert list(read_journal(folder)) == records[:whole]
        assert new_records(JournalFollower(folder)) == records[:whole]


@settings(max_examples=40, deadline=None)
@given(text=st.text(), reads=st.lists(st.booleans(), min_size=1, max_size=12))
def test_a_follower_sees_each_record_once_whenever_it_looks(text: str, reads: list[bool]) -> None:
    with tempfile.TemporaryDirectory() as name:
        writer = JournalWriter(Path(name), segment_size=3)
        follower = JournalFollower(Path(name))
        written: list[SampleRecord] = []
        seen: list[SampleRecord] = []
        for number, look in enumerate(reads):
            written.append(record(number, text))
            writer.append(written[-1])
            if look:
                seen += new_records(follower)
                assert seen == written
        writer.close()
        assert seen + new_records(follower) == written
        assert new_records(follower) == []


def test_a_follower_waits_for_the_end_of_a_torn_line(tmp_path: Path) -> None:
    follower = JournalFollower(tmp_path)
    assert new_records(follower) == []
    write(tmp_path, 2, segment_size=100, close=False)
    path = tmp_path / "segments" / "00000.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    assert new_records(follower) == [record(0)]
    path.write_bytes(content)
    assert new_records(follower) == [record(1)]


def test_a_segment_in_both_forms_counts_once(tmp_path: Path) -> None:
    records = write(tmp_path, 2, segment_size=100, close=False)
    lines = (tmp_path / "segments" / "00000.jsonl").read_bytes()
    pq.write_table(next(read_tables([tmp_path])), tmp_path / "segments" / "00000.parquet")
    assert list(read_journal(tmp_path)) == records
    assert lines, "the lines were there too, as after a death between rename and removal"
    assert new_records(JournalFollower(tmp_path)) == records


@pytest.mark.parametrize("damage", [b'{"item_id": 3}', b"", b"[]"])
def test_a_damaged_line_in_the_middle_is_an_error_that_names_file_and_line(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path, 3, segment_size=100, close=False)
    path = tmp_path / "segments" / "00000.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[1] = damage
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(StoreError, match=r"00000\.jsonl line 2"):
        list(read_journal(tmp_path))
    with pytest.raises(StoreError, match=r"00000\.jsonl line 2"):
        new_records(JournalFollower(tmp_path))


@pytest.mark.parametrize("kept", [0, 20])
def test_what_a_power_cut_left_as_zeros_ends_the_journal_there(tmp_path: Path, kept: int) -> None:
    records = write(tmp_path, 3, segment_size=100, close=False)
    path = tmp_path / "segments" / "00000.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for rest in (b"", b"\n", lines[2]):
        path.write_bytes(lines[0] + lines[1][:kept] + b"\0" * (len(lines[1]) - kept) + rest)
        assert list(read_journal(tmp_path)) == new_records(JournalFollower(tmp_path)) == records[:1]
        assert finished_samples([tmp_path]) == {(records[0].item_id, records[0].repeat)}


def test_a_follower_waits_for_what_still_reads_as_zeros(tmp_path: Path) -> None:
    records = write(tmp_path, 3, segment_size=100, close=False)
    path = tmp_path / "segments" / "00000.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0" * len(lines[1]) + lines[2])
    follower = JournalFollower(tmp_path)
    assert new_records(follower) == records[:1]
    assert new_records(follower) == []
    path.write_bytes(whole)
    assert new_records(follower) == records[1:]


def test_a_truncated_parquet_segment_is_an_error_that_names_it(tmp_path: Path) -> None:
    write(tmp_path, 4, segment_size=4, close=True)
    path = tmp_path / "segments" / "00000.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(StoreError, match=r"00000\.parquet"):
        list(read_journal(tmp_path))


def test_a_journal_that_never_began_is_empty(tmp_path: Path) -> None:
    assert list(read_journal(tmp_path / "absent")) == []
    assert finished_samples([tmp_path / "absent"]) == set()


FILL = """
import resource, signal, sys
from pathlib import Path
from schemas.errors import StoreError
from tasks.inference.exchange.journal import JournalWriter
from tests.support.sample_records import record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = JournalWriter(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
number = 0
try:
    while number < 1000:
        writer.append(record(number))
        number += 1
except StoreError as exc:
    print(exc)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    writer.append(record(number))
    print(number)
"""


def test_a_full_disk_is_a_clear_error_that_loses_and_damages_nothing(tmp_path: Path) -> None:
    limit = 3333
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path), str(limit)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[5])},
    )
    message, number = done.stdout.rsplit("\n", 2)[:2]
    assert "free space" in message
    assert "00000.jsonl" in message
    assert int(number) > 3
    # the failed append and the same one again after space was freed: nothing torn in between
    assert list(read_journal(tmp_path)) == [record(each) for each in range(int(number) + 1)]


def test_the_disks_first_answer_is_told_where_it_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = JournalWriter(tmp_path)

    def refuse(number: int, words: str) -> Callable[..., int]:
        def fail(*_arguments: object) -> int:
            raise OSError(number, words)

        return fail

    monkeypatch.setattr("os.write", refuse(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("os.ftruncate", refuse(errno.EROFS, "Read-only file system"))
    with pytest.raises(StoreError, match=r"No space left on device.*free space"):
        writer.append(record(1))


def test_appending_to_a_closed_journal_is_an_error(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    writer.close()
    with pytest.raises(StoreError, match="closed"):
        writer.append(record(1))
    writer.sync()
    writer.close()
