"""The samples that a worker makes, in order: a queue that its controller may cut short or add to while it runs."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

import pyarrow as pa

from schemas.identity import SampleKey
from tasks.inference.exchange.work_table import sample_keys
from tasks.inference.exchange.worker_files import read_cut, read_more, work_has_ended

_ROWS_AT_ONCE: Final = 4096


class WorkQueue:
    """Counts what was taken from it; `num_rows` is what it holds in all, less what a cut took away."""

    def __init__(self, rows: pa.Table, folder: Path) -> None:
        """`rows`: WORK_SCHEMA; `folder`: the worker's, where cuts and additions appear."""
        self.num_rows = rows.num_rows
        self.num_taken = 0
        self.cut_number = 0
        self._folder = folder
        self._num_added = 0
        self._rows: Iterator[SampleKey] = _keys(rows)

    def take(self) -> SampleKey | None:
        """Return the next sample, None when there is none now."""
        if self.num_taken == self.num_rows:
            return None
        self.num_taken += 1
        return next(self._rows)

    def look(self) -> None:
        """Take account of what the controller has changed since.

        Raises:
            WorkerError: what it wrote cannot be read.
        """
        while (rows := read_more(self._folder, self._num_added + 1)) is not None:
            self._num_added += 1
            # an iterator ends where a cut has ended it
            self._rows = chain(islice(self._rows, self.num_rows - self.num_taken), _keys(rows))
            self.num_rows += rows.num_rows
        cut = read_cut(self._folder)
        if cut is not None and cut.number > self.cut_number and cut.num_given <= self._num_added:
            # what is taken is not given back: the engine works on it
            self.num_rows = max(self.num_taken, min(self.num_rows, cut.num_rows))
            self.cut_number = cut.number

    @property
    def has_ended(self) -> bool:
        """Whether the controller has said that nothing will be added."""
        return work_has_ended(self._folder)


def _keys(rows: pa.Table) -> Iterator[SampleKey]:
    """Yield the rows; they become Python objects a few thousand at a time."""
    for batch in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from sample_keys(batch)
