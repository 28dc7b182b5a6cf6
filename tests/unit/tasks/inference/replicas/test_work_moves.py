"""Board and queues together: whatever arrives late, dies or waits, every sample is made once and nobody waits for ever.

The controller's board and the workers' queues are the real ones, with real files between them; engines, scheduler and
the moment at which a file becomes visible are Hypothesis's.
"""

import random
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
from tasks.inference.exchange.work_table import sample_keys, work_table
from tasks.inference.replicas.work_board import WorkBoard
from tasks.inference.worker.work_queue import WorkQueue

PLACES = 2
"""Samples in an engine at once."""
NUMBERS = st.integers(0, 11)
"""Which one, among those that there are."""
SEEDS = st.integers(0, 2**32)
"""Of what happens until then."""


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

    @precondition(lambda self: self.queued)
    @rule(seed=SEEDS, number=NUMBERS)
    def start(self, seed: int, number: int) -> None:
        self._start(number)
        self.go_on(seed)

    @initialize(num_running=st.integers(2, 4), sizes=st.lists(st.sampled_from([1, 4, 20, 60]), min_size=2, max_size=4))
    def plan(self, num_running: int, sizes: list[int]) -> None:
        work = {
            replica: work_table([SampleKey(f"{replica}-{number}", 0) for number in range(size)])
            for replica, size in enumerate(sizes)
        }
        self.planned = {key for rows in work.values() for key in sample_keys(rows)}
        self.board = WorkBoard(work)
        for replica, rows in work.items():
            self.done_by[replica] = set()
            self._submit(replica, rows, num_kept=0)
        self._start(num_running - 1)

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

    def _start(self, number: int) -> None:
        for replica in sorted(self.queued)[: 1 + number % len(self.queued)]:
            folder, rows = self.queued.pop(replica)
            view = folder.with_name(f"{folder.name}-seen")
            view.mkdir()
            self.workers[replica] = Worker(folder=folder, view=view, rows=rows, queue=WorkQueue(rows, view))

    @rule(seed=SEEDS)
    def go_on(self, seed: int) -> None:
        """Let workers do some rounds, disturbed by nothing but what they see late and what is heard of them late."""
        rng = random.Random(seed)
        paces = {replica: rng.random() ** 2 for replica in range(4)}
        for _ in range(rng.randrange(60)):
            if self.workers:
                replicas = sorted(self.workers)
                replica = rng.choices(replicas, [paces[replica] for replica in replicas])[0]
                self._go_on(replica, self.workers[replica], rng)

    def _go_on(self, replica: int, worker: Worker, rng: random.Random) -> None:
        """Let some files appear, the worker do a round, and its heartbeat be written and heard, or not."""
        for path in sorted(worker.folder.glob("[!.]*")):
            if rng.random() < 0.6:
                shutil.copyfile(path, worker.view / path.name)
        self._round(replica, worker, rng.randint(0, PLACES))
        if rng.random() < 0.8:
            worker.tell(torn=rng.random() < 0.2)
        if rng.random() < 0.8:
            self._hear(replica, worker)

    @rule()
    def hear(self) -> None:
        """Let the last heartbeats be heard, late or for a second time."""
        for replica, worker in list(self.workers.items()):
            self._hear(replica, worker)

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

    @rule(seed=SEEDS, number=NUMBERS, is_started_again=st.booleans())
    def die(self, seed: int, number: int, is_started_again: bool) -> None:
        self.go_on(seed)
        if self.workers:
            replica = sorted(self.workers)[number % len(self.workers)]
            del self.workers[replica]
            self.dead.add(replica)
            if is_started_again:
                self._start_again(0, 0, seed)
                if self.queued:
                    self._start(number)

    @rule(seed=SEEDS, number=NUMBERS, by_disk=st.booleans())
    def fail(self, seed: int, number: int, by_disk: bool) -> None:
        self.go_on(seed)
        if not self.workers:
            return
        replica = sorted(self.workers)[number % len(self.workers)]
        if by_disk:  # it is noticed with the next file that is written there, by either side
            shutil.rmtree(self.workers[replica].folder, ignore_errors=True)
        else:
            self._give_up(replica)

    def _give_up(self, replica: int) -> None:
        del self.workers[replica]
        self.failed.add(replica)
        self.board.end(replica)

    # what the controller does

    @precondition(lambda self: self.dead)
    @rule(seed=SEEDS, number=NUMBERS, num_kept=st.integers(0, 2))
    def start_again(self, seed: int, number: int, num_kept: int) -> None:
        self.go_on(seed)
        self._start_again(number, num_kept, seed)

    def _start_again(self, number: int, num_kept: int, seed: int) -> None:
        replica = sorted(self.dead)[number % len(self.dead)]
        self.dead.remove(replica)
        self._begin_again(replica, num_kept, seed)

    def _begin_again(self, replica: int, num_kept: int, seed: int) -> None:
        left = self.board.take_back(replica, self.done_by[replica])
        self.go_on(seed + 1)
        if left:
            self._submit(replica, work_table(left), num_kept=min(num_kept, len(left)))
        else:
            self.completed.add(replica)
            self.board.end(replica)

    @precondition(lambda self: self.queued)
    @rule(seed=SEEDS, number=NUMBERS)
    def look_at_the_queue(self, seed: int, number: int) -> None:
        self.go_on(seed)
        self._look_at_the_queue(number)

    def _look_at_the_queue(self, number: int) -> None:
        replica = sorted(self.queued)[number % len(self.queued)]
        if self.board.note_queued(replica):
            del self.queued[replica]
            if self.board.hand_out(replica, self.done_by[replica]):
                self.completed.add(replica)
                self.board.end(replica)
            else:
                self._begin_again(replica, 0, number)

    def _run_to_the_end(self) -> None:
        """Let everything happen that must, and no job leave the queue while a worker lives."""
        for _ in range(200):
            for number in range(len(self.dead)):
                self._start_again(number, 0, number)
            for number in range(len(self.queued)):
                if self.queued:
                    self._look_at_the_queue(number)
            if self.queued and not self.workers:
                self._start(0)
            for replica, worker in list(self.workers.items()):
                if not worker.folder.is_dir():  # its heartbeat finds no place, and it ends by itself (vital_signs.py)
                    del self.workers[replica]
                    self.dead.add(replica)
                    continue
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
TestMoves.settings = settings(max_examples=100, stateful_step_count=20)
