"""Board and queues together: whatever arrives late, dies or waits, every sample is made once and nobody waits for ever.

The controller's board and the workers' queues are the real ones, with real files between them; engines, scheduler and
the moment at which a file becomes visible are Hypothesis's.
"""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from schemas.errors import StoreError
from schemas.identity import SampleKey
from schemas.inference import Heartbeat
from schemas.states import WorkerPhase
from tasks.inference.planning import sample_keys, work_table
from tasks.inference.work_board import WorkBoard
from tasks.inference.work_queue import WorkQueue

PLACES = 2
"""Samples in an engine at once."""
NUMBERS = st.integers(0, 11)
"""Which one, among those that there are."""
HEARD = st.sampled_from(["at once", "at once", "torn", "not"])


@dataclass(kw_only=True)
class Worker:
    """One process: `folder` is what the controller writes, `view` what of it this worker's machine shows."""

    folder: Path
    view: Path
    rows: pa.Table
    queue: WorkQueue
    in_engine: list[SampleKey] = field(default_factory=list[SampleKey])
    phase: WorkerPhase = WorkerPhase.STARTING
    last_phase: WorkerPhase = WorkerPhase.STARTING
    beat: Heartbeat | None = None
    num_beats: int = 0

    @property
    def has_nothing(self) -> bool:
        return not self.in_engine and self.queue.num_taken == self.queue.num_rows

    def work(self) -> list[SampleKey]:
        """Fill the engine; return what went in."""
        new: list[SampleKey] = []
        while len(self.in_engine) + len(new) < PLACES and (key := self.queue.take()) is not None:
            new.append(key)
        self.in_engine += new
        self.phase = WorkerPhase.IDLE if self.has_nothing else WorkerPhase.GENERATING
        return new

    def tell(self, *, torn: bool) -> None:
        """Write a heartbeat; its thread may have read the phase before the main thread went on."""
        self.num_beats += 1
        self.beat = Heartbeat(
            phase=self.last_phase if torn else self.phase,
            pid=1,
            time=float(self.num_beats),
            num_started=self.queue.num_taken,
            num_work=self.queue.num_rows,
            cut_number=self.queue.cut_number,
        )
        self.last_phase = self.phase


class Moves(RuleBasedStateMachine):
    """A run of up to four replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.num_folders = 0
        self.board = WorkBoard({})
        self.planned: set[SampleKey] = set()
        self.done: set[SampleKey] = set()
        self.done_by: dict[int, set[SampleKey]] = {}
        self.queued: dict[int, tuple[Path, pa.Table]] = {}
        self.workers: dict[int, Worker] = {}
        self.dead: set[int] = set()
        self.failed: set[int] = set()
        self.completed: set[int] = set()

    @initialize(sizes=st.lists(st.sampled_from([1, 3, 8, 20]), min_size=2, max_size=4))
    def plan(self, sizes: list[int]) -> None:
        work = {
            replica: work_table([SampleKey(f"{replica}-{number}", 0) for number in range(size)])
            for replica, size in enumerate(sizes)
        }
        self.planned = {key for rows in work.values() for key in sample_keys(rows)}
        self.board = WorkBoard(work)
        for replica, rows in work.items():
            self.done_by[replica] = set()
            self._submit(replica, rows, num_kept=0)

    def _submit(self, replica: int, rows: pa.Table, *, num_kept: int) -> None:
        self.num_folders += 1
        folder = self.root / str(self.num_folders)
        folder.mkdir()
        self.queued[replica] = (folder, rows)
        self.board.begin(replica, folder, rows, num_kept=num_kept)

    def teardown(self) -> None:
        try:
            self._run_to_the_end()
        finally:
            shutil.rmtree(self.root)

    # what workers do

    @rule(number=NUMBERS)
    def start(self, number: int) -> None:
        if self.queued:
            replica = sorted(self.queued)[number % len(self.queued)]
            folder, rows = self.queued.pop(replica)
            view = folder.with_name(f"{folder.name}-seen")
            view.mkdir()
            self.workers[replica] = Worker(folder=folder, view=view, rows=rows, queue=WorkQueue(rows, view))

    @rule(rounds=st.lists(st.tuples(NUMBERS, st.integers(0, 15), st.integers(0, PLACES), HEARD), min_size=1))
    def go_on(self, rounds: list[tuple[int, int, int, str]]) -> None:
        """Let workers do some rounds, undisturbed but by what they see and what is heard of them."""
        for number, shown, num_finished, heard in rounds:
            self._go_on(number, shown, num_finished, heard)

    def _go_on(self, number: int, shown: int, num_finished: int, heard: str) -> None:
        """Let some files appear, the worker do a round, and its heartbeat be written and heard, or not."""
        if not self.workers:
            return
        replica = sorted(self.workers)[number % len(self.workers)]
        worker = self.workers[replica]
        names = sorted(path.name for path in worker.folder.glob("[!.]*"))
        for place, name in enumerate(names):
            if shown >> place % 4 & 1:
                shutil.copyfile(worker.folder / name, worker.view / name)
        self._round(replica, worker, num_finished)
        worker.tell(torn=heard == "torn")
        if heard != "not":
            self._hear(replica, worker)

    @rule(number=NUMBERS)
    def hear(self, number: int) -> None:
        """Let the last heartbeat be heard, late or for a second time."""
        if self.workers:
            replica = sorted(self.workers)[number % len(self.workers)]
            self._hear(replica, self.workers[replica])

    def _round(self, replica: int, worker: Worker, num_finished: int) -> None:
        worker.queue.look()
        for key in worker.work():
            assert key not in self.done
            assert not any(key in other.in_engine for other in self.workers.values() if other is not worker)
        for key in worker.in_engine[:num_finished]:
            worker.in_engine.remove(key)
            self.done.add(key)
            self.done_by[replica].add(key)
        if worker.has_nothing:
            worker.phase = WorkerPhase.IDLE
            if worker.queue.has_ended:
                del self.workers[replica]
                self.completed.add(replica)
                self.board.end(replica)

    def _hear(self, replica: int, worker: Worker) -> None:
        if replica in self.workers and worker.beat:
            try:
                self.board.note(replica, worker.beat)
            except StoreError:
                self._give_up(replica)

    # what goes wrong

    @precondition(lambda self: self.workers)
    @rule(number=NUMBERS)
    def die(self, number: int) -> None:
        replica = sorted(self.workers)[number % len(self.workers)]
        del self.workers[replica]
        self.dead.add(replica)

    @precondition(lambda self: self.workers and not self.failed)
    @rule(number=NUMBERS, by_disk=st.booleans())
    def fail(self, number: int, by_disk: bool) -> None:
        replica = sorted(self.workers)[number % len(self.workers)]
        if by_disk:  # it is noticed with the next file
            shutil.rmtree(self.workers[replica].folder, ignore_errors=True)
        else:
            self._give_up(replica)

    def _give_up(self, replica: int) -> None:
        del self.workers[replica]
        self.failed.add(replica)
        self.board.end(replica)

    # what the controller does

    @precondition(lambda self: self.dead)
    @rule(number=NUMBERS, num_kept=st.integers(0, 2))
    def start_again(self, number: int, num_kept: int) -> None:
        replica = sorted(self.dead)[number % len(self.dead)]
        self.dead.remove(replica)
        self._begin_again(replica, num_kept)

    def _begin_again(self, replica: int, num_kept: int) -> None:
        left = self.board.take_back(replica, self.done_by[replica])
        if left:
            self._submit(replica, work_table(left), num_kept=min(num_kept, len(left)))
        else:
            self.completed.add(replica)
            self.board.end(replica)

    @precondition(lambda self: self.queued)
    @rule(number=NUMBERS)
    def look_at_the_queue(self, number: int) -> None:
        replica = sorted(self.queued)[number % len(self.queued)]
        if self.board.note_queued(replica):
            del self.queued[replica]
            if self.board.hand_out(replica, self.done_by[replica]):
                self.completed.add(replica)
                self.board.end(replica)
            else:
                self._begin_again(replica, 0)

    def _run_to_the_end(self) -> None:
        """Let everything happen that must, and no job leave the queue while a worker lives."""
        for _ in range(200):
            for number in range(len(self.dead)):
                self.start_again(number, 0)
            for number in range(len(self.queued)):
                if self.queued:
                    self.look_at_the_queue(number)
            if not self.workers:
                self.start(0)
            for replica, worker in list(self.workers.items()):
                if worker.folder.is_dir():
                    shutil.copytree(worker.folder, worker.view, dirs_exist_ok=True)
                self._round(replica, worker, 1)
                worker.tell(torn=False)
                self._hear(replica, worker)
        assert not self.dead
        assert not self.workers
        assert not self.queued
        assert self.completed | self.failed == set(self.done_by)
        given_up = {key for replica in self.failed for key in self.board.take_back(replica, self.done_by[replica])}
        assert self.done | given_up == self.planned
        assert self.done & given_up == set()


TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=100, stateful_step_count=40)
