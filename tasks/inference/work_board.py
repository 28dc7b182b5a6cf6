"""Who makes what while the replicas of an attempt run: work of a slow replica goes to one that has started all its own.

The board is the controller's memory of what each replica was given. A running worker is asked to leave the end of its
work (cut.json), and only what it has confirmed to leave, by a heartbeat, is given to another one (more-0001.parquet):
a sample is never in two hands. A replica that still waits in a scheduler's queue, while another has nothing to do,
gives up its job and all of its work.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from schemas.identity import SampleKey
from schemas.inference import Heartbeat, WorkCut
from schemas.states import WorkerPhase
from tasks.inference.planning import sample_keys, work_table
from tasks.inference.worker_files import end_work, give_more, write_cut

_WORTH_CUTTING: Final = 2
"""Samples that a replica must have left to start: it keeps the half of them."""


@dataclass(slots=True)
class _Share:
    """What one replica was given, and how far it is."""

    rows: pa.Table
    folder: Path | None = None
    phase: WorkerPhase = WorkerPhase.STARTING
    num_started: int = 0
    num_given: int = 0
    num_cuts: int = 0
    cut_for: int | None = None
    is_over: bool = False
    is_told_to_end: bool = False
    must_yield: bool = False

    @property
    def num_left(self) -> int:
        """Samples that it has not started."""
        return self.rows.num_rows - self.num_started

    @property
    def is_busy(self) -> bool:
        """Whether it may yet have something to give away."""
        return not self.is_over and (self.cut_for is not None or self.num_left >= _WORTH_CUTTING)


class WorkBoard:
    """The work of the replicas of one attempt. Its methods may be called from the threads of all of them."""

    def __init__(self, work: Mapping[int, pa.Table]) -> None:
        """`work`: replica to its WORK_SCHEMA rows."""
        self._lock = threading.Lock()
        self._shares = {replica: _Share(rows=rows) for replica, rows in work.items()}

    def begin(self, replica: int, folder: Path, rows: pa.Table) -> None:
        """Note that a worker with this folder is started for these rows."""
        with self._lock:
            self._shares[replica] = _Share(rows=rows, folder=folder)

    def remaining(self, replica: int, done: Collection[SampleKey]) -> list[SampleKey]:
        """Return what a replica was given and has not done, in order."""
        with self._lock:
            rows = self._shares[replica].rows
        return [key for key in sample_keys(rows) if key not in done]

    def note_queued(self, replica: int) -> bool:
        """Note that a replica's job waits in the queue; return whether it has to give its work up."""
        with self._lock:
            self._shares[replica].phase = WorkerPhase.QUEUED
            return self._shares[replica].must_yield

    def note(self, replica: int, heartbeat: Heartbeat) -> None:
        """Take account of a heartbeat, and move work where that helps.

        Raises:
            StoreError: a worker's folder cannot be written.
        """
        with self._lock:
            share = self._shares[replica]
            share.phase, share.num_started, share.must_yield = heartbeat.phase, heartbeat.num_started, False
            if share.cut_for is not None and heartbeat.cut_number == share.num_cuts:
                self._hand_over(share, share.cut_for, heartbeat.num_work)
            if _is_hungry(share):
                self._serve(replica, share)

    def hand_out(self, keys: Sequence[SampleKey]) -> bool:
        """Divide what is left of a replica that gave up among those that have nothing to do; False without any.

        Raises:
            StoreError: a worker's folder cannot be written.
        """
        with self._lock:
            takers = [share for share in self._shares.values() if _is_hungry(share)]
            for number, taker in enumerate(takers):
                _give(taker, work_table(keys[number :: len(takers)]))
            return bool(takers)

    def end(self, replica: int) -> None:
        """Note that a replica is over, whatever it has left."""
        with self._lock:
            share = self._shares[replica]
            share.is_over, share.cut_for = True, None

    def _hand_over(self, share: _Share, taker: int, num_kept: int) -> None:
        """Give what a worker has confirmed to leave to whom it was cut for; back to it, where that one has ended."""
        share.cut_for = None
        freed = share.rows.slice(num_kept)
        share.rows = share.rows.slice(0, num_kept)
        if freed.num_rows:
            _give(share if self._shares[taker].is_over else self._shares[taker], freed)

    def _serve(self, replica: int, share: _Share) -> None:
        """Find work for a replica that has started all of its own; let it go where there is none."""
        others = self._shares.values()
        if any(other.cut_for == replica for other in others):
            return
        slowest = max(filter(_can_be_cut, others), key=lambda other: other.num_left, default=None)
        if slowest is not None:
            _cut(slowest, replica)
        elif share.phase is WorkerPhase.IDLE and not self._ask_queued():
            self._dismiss(share)

    def _ask_queued(self) -> bool:
        """Have one of the replicas in the queue give up; return whether anybody may have work to give soon."""
        others = [other for other in self._shares.values() if other.is_busy]
        queued = [other for other in others if other.phase is WorkerPhase.QUEUED]
        if queued and not any(other.must_yield for other in queued):
            queued[-1].must_yield = True
        return bool(others)

    @staticmethod
    def _dismiss(share: _Share) -> None:
        if share.folder is not None:
            share.is_told_to_end = True
            end_work(share.folder)


def _is_hungry(share: _Share) -> bool:
    is_running = share.phase in (WorkerPhase.GENERATING, WorkerPhase.IDLE)
    return is_running and not share.is_over and not share.is_told_to_end and share.num_left == 0


def _can_be_cut(share: _Share) -> bool:
    is_running = share.phase in (WorkerPhase.STARTING, WorkerPhase.LOADING, WorkerPhase.GENERATING)
    return is_running and not share.is_over and share.cut_for is None and share.num_left >= _WORTH_CUTTING


def _cut(share: _Share, taker: int) -> None:
    if share.folder is None:
        return
    share.num_cuts += 1
    share.cut_for = taker
    num_kept = share.num_started + share.num_left // 2
    write_cut(share.folder, WorkCut(number=share.num_cuts, num_rows=num_kept, num_given=share.num_given))


def _give(share: _Share, rows: pa.Table) -> None:
    if share.folder is None:
        return
    share.num_given += 1
    share.rows = pa.concat_tables([share.rows, rows])
    give_more(share.folder, share.num_given, rows)
