"""Who makes what while the replicas of an attempt run: work of a slow replica goes to one that has started all its own.

The board is the controller's memory of what each replica was given. A running worker is asked to leave the end of its
work (cut.json), and only what it has confirmed to leave, by a heartbeat, is given to another one (more-0001.parquet):
a sample is never in two hands. Nothing is given to a worker that has a cut to confirm, so that both sides count the
same rows. A replica that still waits in a scheduler's queue, while another has nothing to do, gives up its job and all
of its work. A folder that cannot be written ends the replica whose folder it is, in its own thread.
"""

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from schemas.errors import StoreError
from schemas.identity import SampleKey
from schemas.inference import Heartbeat, WorkCut
from schemas.states import WorkerPhase
from tasks.inference.exchange.work_table import sample_keys, work_table
from tasks.inference.exchange.worker_files import end_work, give_more, write_cut

_WORTH_CUTTING: Final = 2
"""Samples that a replica must have left to start: it keeps the half of them."""


@dataclass(slots=True)
class _Share:
    """What one replica was given, and how far it is."""

    rows: pa.Table
    folder: Path | None = None
    num_kept: int = 0
    phase: WorkerPhase = WorkerPhase.QUEUED
    num_started: int = 0
    num_given: int = 0
    num_cuts: int = 0
    cut_for: int | None = None
    is_over: bool = False
    is_told_to_end: bool = False
    must_yield: bool = False
    refusal: StoreError | None = None

    @property
    def num_spare(self) -> int:
        """Samples that it has not started and that others may make."""
        return self.rows.num_rows - max(self.num_started, self.num_kept)

    @property
    def is_queued(self) -> bool:
        """Whether its worker is not known to run."""
        return not self.is_over and self.phase is WorkerPhase.QUEUED

    @property
    def may_yield(self) -> bool:
        """Whether all of its work may be made by others."""
        return self.is_queued and not self.num_kept and self.num_spare > 0

    @property
    def is_hungry(self) -> bool:
        """Whether its worker runs, has started all that it was given, and will hear of more."""
        is_running = self.phase in (WorkerPhase.GENERATING, WorkerPhase.IDLE)
        is_open = not self.is_over and not self.is_told_to_end and self.cut_for is None
        return is_running and is_open and self.num_started >= self.rows.num_rows

    @property
    def can_be_cut(self) -> bool:
        """Whether its worker runs and has enough to leave some of it."""
        is_running = self.phase in (WorkerPhase.STARTING, WorkerPhase.LOADING, WorkerPhase.GENERATING)
        return is_running and not self.is_over and self.cut_for is None and self.num_spare >= _WORTH_CUTTING

    @property
    def is_busy(self) -> bool:
        """Whether it may yet have something to give away."""
        return self.may_yield or (not self.is_over and (self.cut_for is not None or self.can_be_cut))

    def cut(self, taker: int) -> None:
        """Ask its worker to leave half of what it has not started."""
        self.num_cuts += 1
        self.cut_for = taker
        num_rows = self.rows.num_rows - (self.num_spare + 1) // 2
        self._tell(WorkCut(number=self.num_cuts, num_rows=num_rows, num_given=self.num_given))

    def give(self, rows: pa.Table) -> None:
        """Add to its worker's work."""
        self.num_given += 1
        self.rows = pa.concat_tables([self.rows, rows])
        self._tell(rows)

    def dismiss(self) -> None:
        """Tell its worker that nothing will be added."""
        self.is_told_to_end = True
        self._tell(None)

    def _tell(self, what: WorkCut | pa.Table | None) -> None:
        if self.folder is None:
            return
        try:
            if what is None:
                end_work(self.folder)
            elif isinstance(what, WorkCut):
                write_cut(self.folder, what)
            else:
                give_more(self.folder, self.num_given, what)
        except StoreError as exc:
            self.refusal = exc


class WorkBoard:
    """The work of the replicas of one attempt. Its methods may be called from the threads of all of them."""

    def __init__(self, work: Mapping[int, pa.Table]) -> None:
        """`work`: replica to its WORK_SCHEMA rows."""
        self._lock = threading.Lock()
        self._shares = {replica: _Share(rows=rows) for replica, rows in work.items()}
        # whether, since the board changed last, an idle replica found nothing: so would any other, at each heartbeat
        self._is_settled = False

    def begin(self, replica: int, folder: Path, rows: pa.Table, *, num_kept: int = 0) -> None:
        """Note that a worker with this folder is started for these rows; the first `num_kept` are its own to make."""
        with self._lock:
            self._shares[replica] = _Share(rows=rows, folder=folder, num_kept=num_kept)
            self._is_settled = False

    def take_back(self, replica: int, done: Collection[SampleKey]) -> list[SampleKey]:
        """Return what a replica whose worker has ended was given and has not done, in order; it is over without any.

        Until its next worker begins, nothing is given to it nor asked of it.
        """
        with self._lock:
            left = self._left(replica, done)
            self._shares[replica] = _Share(rows=work_table(left), is_over=not left)
            self._is_settled = False
            return left

    def note_queued(self, replica: int) -> bool:
        """Note that a replica's job waits in the queue; return whether it has to give its work up to one in need."""
        with self._lock:
            share = self._shares[replica]
            self._set_phase(share, WorkerPhase.QUEUED)
            return share.must_yield and any(other.is_hungry for other in self._shares.values())

    def note(self, replica: int, heartbeat: Heartbeat) -> None:
        """Take account of a heartbeat, and move work where that helps.

        Raises:
            StoreError: this worker's folder cannot be written.
        """
        with self._lock:
            share = self._shares[replica]
            self._set_phase(share, heartbeat.phase)
            share.num_started, share.must_yield = heartbeat.num_started, False
            if share.cut_for is not None and heartbeat.cut_number == share.num_cuts:
                self._hand_over(share, share.cut_for, heartbeat.num_work)
                self._is_settled = False
            if share.is_hungry and not self._is_settled:
                self._serve(replica, share)
            if share.refusal is not None:
                raise share.refusal

    def hand_out(self, replica: int, done: Collection[SampleKey]) -> bool:
        """Divide what is left of a replica that gave up its job among those that have nothing to do.

        Returns:
            False, with nothing changed, when there are none.
        """
        with self._lock:
            takers = [share for share in self._shares.values() if share.is_hungry]
            if not takers:
                return False
            keys = self._left(replica, done)
            self._shares[replica] = _Share(rows=work_table([]), is_over=True)
            for number, taker in enumerate(takers[: len(keys)]):
                taker.give(work_table(keys[number :: len(takers)]))
            self._is_settled = False
            return True

    def end(self, replica: int) -> None:
        """Note that a replica is over, whatever it has left."""
        with self._lock:
            share = self._shares[replica]
            share.is_over, share.cut_for = True, None
            self._is_settled = False

    def _set_phase(self, share: _Share, phase: WorkerPhase) -> None:
        if share.phase is not phase:
            share.phase = phase
            self._is_settled = False

    def _left(self, replica: int, done: Collection[SampleKey]) -> list[SampleKey]:
        return [key for key in sample_keys(self._shares[replica].rows) if key not in done]

    def _hand_over(self, share: _Share, taker: int, num_kept: int) -> None:
        """Give what a worker has confirmed to leave to whom it was cut for; back to it, where that one has no need."""
        share.cut_for = None
        freed = share.rows.slice(num_kept)
        share.rows = share.rows.slice(0, num_kept)
        if freed.num_rows:
            needy = self._shares[taker]
            (needy if needy.is_hungry else share).give(freed)

    def _serve(self, replica: int, share: _Share) -> None:
        """Find work for a replica that has started all of its own; let it go where there is none."""
        others = [other for number, other in self._shares.items() if number != replica]
        if any(other.cut_for == replica for other in others):
            return
        # one that loads hears of a cut only once it has loaded
        slowest = max(
            filter(lambda other: other.can_be_cut, others),
            key=lambda other: (other.phase is WorkerPhase.GENERATING, other.num_spare),
            default=None,
        )
        if slowest is not None:
            slowest.cut(replica)
        elif share.phase is WorkerPhase.IDLE:
            self._ask_queued(others)
            self._is_settled = any(other.is_busy for other in others)
            if not self._is_settled:
                share.dismiss()

    @staticmethod
    def _ask_queued(others: list[_Share]) -> None:
        """Have as many replicas in the queue give up, the last ones first, as there are with nothing to do."""
        num_idle = 1 + sum(other.is_hungry and other.phase is WorkerPhase.IDLE for other in others)
        queued = [other for other in others if other.may_yield]
        for other in queued[max(0, len(queued) - num_idle) :]:
            other.must_yield = True
