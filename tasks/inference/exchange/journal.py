"""The journal of a worker: every finished sample on disk at once, read back by its controller.

    segments/00000.jsonl      being written: one SampleRecord per line, ended by LF
    segments/00000.parquet    closed: JOURNAL_SCHEMA, written whole, then the .jsonl is removed

One worker writes, others only read. A record counts from its LF on: a line without one was cut by the writer's death
and its sample is made again, and so is all that follows a zero, which is where a power cut took the rest; a whole line
that cannot be read is damage and an error, never skipped.
"""

import errno
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from infra.files.atomic import is_gone, sync_file, sync_folder, write_table_atomically
from schemas.errors import StoreError
from schemas.identity import SampleKey
from schemas.inference import SampleRecord
from schemas.tables import JOURNAL_SCHEMA, conform
from tasks.inference.exchange.work_table import sample_keys
from tasks.inference.exchange.worker_files import whole_lines

SEGMENT_SIZE: Final = 512
"""Samples per segment: small enough that a follower re-reads little, large enough that a million make 2,000 files."""


class JournalWriter:
    """Appends to the journal of one worker. Thread-safe: the heartbeat's thread syncs, the worker's appends."""

    def __init__(self, folder: Path, *, segment_size: int = SEGMENT_SIZE) -> None:
        """Begin a new segment under `folder`; what earlier writers left there stays.

        Raises:
            StoreError: the folder cannot be written.
        """
        self.num_records = 0
        self._segments = folder / "segments"
        self._segment_size = segment_size
        self._lock = threading.Lock()
        self._records: list[SampleRecord] = []
        try:
            self._segments.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise StoreError(f"{self._segments} cannot be made: {exc.strerror}; free or choose another disk") from exc
        self._number = max(_segment_numbers(self._segments), default=-1) + 1
        self._open_segment()

    def append(self, record: SampleRecord) -> None:
        """Hand one record to the kernel: it survives this process from here on, and the machine from the next `sync`.

        Raises:
            StoreError: the disk refused; all earlier records are in the journal, this one may be.
        """
        line = record.model_dump_json().encode("utf-8") + b"\n"
        with self._lock:
            self._write(line)
            self._records.append(record)
            self.num_records += 1
            if len(self._records) >= self._segment_size:
                self._close_segment()
                self._number += 1
                self._open_segment()

    def sync(self) -> None:
        """Make what was appended survive a power cut.

        Raises:
            StoreError: the disk refused.
        """
        # a duplicate keeps the file open while a closing segment replaces it, so appends need not wait for the disk
        with self._lock:
            descriptor = os.dup(self._descriptor) if self._descriptor >= 0 else -1
        if descriptor < 0:
            return
        try:
            sync_file(descriptor)
        except OSError as exc:
            raise StoreError(_refusal(self._path, exc)) from exc
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Turn the last segment into Parquet; an empty one disappears.

        Raises:
            StoreError: the disk refused; the segment stays as lines.
        """
        with self._lock:
            if self._descriptor < 0:
                return
            if self._records:
                self._close_segment()
            else:
                self._drop_lines()

    @property
    def _path(self) -> Path:
        return self._segments / f"{self._number:05d}.jsonl"

    def _open_segment(self) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            sync_folder(self._segments)
        except OSError as exc:
            self._descriptor = -1
            raise StoreError(_refusal(self._path, exc)) from exc
        self._size = 0

    def _write(self, line: bytes) -> None:
        if self._descriptor < 0:
            raise StoreError(f"the journal {self._segments} is closed; open a new one")
        written = 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError as exc:
            # what got onto the disk of this line would end up in the middle of a file
            with suppress(OSError):  # the disk's first answer is the one that tells
                os.ftruncate(self._descriptor, self._size)
                os.lseek(self._descriptor, self._size, os.SEEK_SET)
            raise StoreError(_refusal(self._path, exc)) from exc
        self._size += len(line)

    def _close_segment(self) -> None:
        write_table_atomically(self._path.with_suffix(".parquet"), _to_table(self._records))
        self._records = []
        self._drop_lines()

    def _drop_lines(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
        self._path.unlink()


class JournalFollower:
    """Reads a journal while it grows; each record once. The cost of a call is that of what is new."""

    def __init__(self, folder: Path) -> None:
        """Start before the first record; `folder` need not exist yet."""
        self._segments = folder / "segments"
        self._number = 0
        self._num_read = 0
        self._offset = 0

    def new_tables(self) -> Iterator[pa.Table]:
        """Yield the records that were completed since the last call, in the order of the journal.

        They come as JOURNAL_SCHEMA tables, one per segment: a long journal is never in memory as a whole. What is not
        taken from the iterator is left to the next call.

        Raises:
            StoreError: the journal is damaged.
        """
        while True:
            # looked up before the segment is read: its successor exists only once it is complete
            has_successor = self._has_successor()
            parquet = self._segments / f"{self._number:05d}.parquet"
            is_closed = parquet.exists()
            table = _read_parquet(parquet).slice(self._num_read) if is_closed else self._read_lines(parquet)
            is_last = not has_successor and not is_closed
            if not is_last:
                self._number += 1
                self._num_read = self._offset = 0
            if table.num_rows:
                yield table
            if is_last:
                return

    def _has_successor(self) -> bool:
        stem = self._segments / f"{self._number + 1:05d}"
        return stem.with_suffix(".jsonl").exists() or stem.with_suffix(".parquet").exists()

    def _read_lines(self, parquet: Path) -> pa.Table:
        path = parquet.with_suffix(".jsonl")
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError as exc:
            if is_gone(exc):  # not begun, or closed a moment ago: the next call finds its Parquet
                return JOURNAL_SCHEMA.empty_table()
            raise _unreadable(path, exc) from exc
        records, num_bytes = _parse_lines(path, data, self._num_read)
        self._num_read += len(records)
        self._offset += num_bytes
        return _to_table(records)


def read_tables(folders: Iterable[Path]) -> Iterator[pa.Table]:
    """Yield the records of finished or abandoned journals, a JOURNAL_SCHEMA table per segment, folder by folder.

    Raises:
        StoreError: a journal is damaged, with file and line.
    """
    for folder in folders:
        segments = folder / "segments"
        for number in sorted(_segment_numbers(segments)):
            parquet = segments / f"{number:05d}.parquet"
            if parquet.exists():
                yield _read_parquet(parquet)
                continue
            lines = parquet.with_suffix(".jsonl")
            try:
                data = lines.read_bytes()
            except OSError as exc:
                if not is_gone(exc):
                    raise _unreadable(lines, exc) from exc
                yield _read_parquet(parquet)  # closed a moment ago by a living writer
                continue
            records, _ = _parse_lines(lines, data, 0)
            if records:
                yield _to_table(records)


def in_batches(tables: Iterable[pa.Table], num_rows: int) -> Iterator[pa.Table]:
    """Yield the same rows in tables of at least `num_rows`, the last one excepted."""
    held: list[pa.Table] = []
    num_held = 0
    for table in tables:
        held.append(table)
        num_held += table.num_rows
        if num_held >= num_rows:
            yield pa.concat_tables(held)
            held, num_held = [], 0
    if held:
        yield pa.concat_tables(held)


def read_journal(folder: Path) -> Iterator[SampleRecord]:
    """Yield the records of one worker's journal in order.

    Raises:
        StoreError: the journal is damaged, with file and line.
    """
    for table in read_tables([folder]):
        yield from map(SampleRecord.model_validate, table.to_pylist())


def finished_samples(folders: Iterable[Path]) -> set[SampleKey]:
    """Return the (item_id, repeat)s that the journals of these workers hold.

    Raises:
        StoreError: a journal is damaged, with file and line.
    """
    keys: set[SampleKey] = set()
    for table in read_tables(folders):
        keys.update(sample_keys(table))
    return keys


def _segment_numbers(segments: Path) -> set[int]:
    try:
        names = os.listdir(segments)  # noqa: PTH208 - names alone, a million samples make thousands
    except FileNotFoundError:
        return set()
    stems = (name.removesuffix(".jsonl").removesuffix(".parquet") for name in names if not name.startswith("."))
    return {int(stem) for stem in stems if stem.isdigit()}


def _parse_lines(path: Path, data: bytes, num_before: int) -> tuple[list[SampleRecord], int]:
    """Return the records of the whole lines in `data` and how many bytes those take."""
    lines = whole_lines(data)
    records: list[SampleRecord] = []
    for number, line in enumerate(lines, start=num_before + 1):
        try:
            records.append(SampleRecord.model_validate_json(line))
        except ValidationError as exc:
            raise StoreError(
                f"{path} line {number} is no sample: {line[:80]!r} ({exc.errors()[0]['msg']}); the file was changed or "
                "the disk fails: restore it, or remove it to generate its samples again"
            ) from exc
    return records, sum(len(line) + 1 for line in lines)


def _read_parquet(path: Path) -> pa.Table:
    try:
        return conform(pq.read_table(path), JOURNAL_SCHEMA)
    except (OSError, pa.ArrowInvalid) as exc:
        raise StoreError(
            f"{path} cannot be read as a journal segment ({exc}): restore it, or remove it to generate its samples anew"
        ) from exc


def _unreadable(path: Path, exc: OSError) -> StoreError:
    return StoreError(f"{path} cannot be read ({exc.strerror}): check the disk, and run the same command again")


def _to_table(records: Sequence[SampleRecord]) -> pa.Table:
    if not records:  # nearly every look at nearly every journal, and `from_pylist` takes milliseconds over it
        return JOURNAL_SCHEMA.empty_table()
    rows = [record.model_dump(mode="json") for record in records]
    return pa.Table.from_pylist(rows, schema=JOURNAL_SCHEMA)


def _refusal(path: Path, exc: OSError) -> str:
    full = exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    advice = "free space there" if full else "check the disk"
    return f"cannot write {path} ({exc.strerror}): {advice} and run the same command again; finished samples are kept"
