"""The board's moves one by one, and the moments between two of them at which a worker may die."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import StoreError
from schemas.identity import SampleKey
from schemas.inference import Heartbeat
from schemas.states import WorkerPhase
from tasks.inference.exchange.work_table import sample_keys, work_table
from tasks.inference.exchange.worker_files import read_cut, read_more, work_has_ended
from tasks.inference.replicas.work_board import WorkBoard
from tasks.inference.worker.work_queue import WorkQueue


class Bench:
    """A board, and what its workers would find in their folders."""

    def __init__(self, root: Path, *sizes: int) -> None:
        self._root = root
        self.work = {
            replica: [SampleKey(f"{replica}-{number}", 0) for number in range(size)]
            for replica, size in enumerate(sizes)
        }
        self.board = WorkBoard({replica: work_table(keys) for replica, keys in self.work.items()})
        self.folders: dict[int, Path] = {}
        for replica, keys in self.work.items():
            self.begin(replica, keys)

    def begin(self, replica: int, keys: Sequence[SampleKey], *, num_kept: int = 0) -> None:
        self.folders[replica] = self._root / f"{replica}-{len(list(self._root.iterdir()))}"
        self.folders[replica].mkdir()
        self.board.begin(replica, self.folders[replica], work_table(keys), num_kept=num_kept)

    def hear(
        self,
        replica: int,
        num_started: int,
        phase: WorkerPhase = WorkerPhase.GENERATING,
        *,
        num_work: int = 0,
        cut_number: int = 0,
    ) -> None:
        beat = Heartbeat(
            phase=phase, pid=1, time=0.0, num_started=num_started, num_work=num_work, cut_number=cut_number
        )
        self.board.note(replica, beat)

    def cut_at(self, replica: int) -> int | None:
        cut = read_cut(self.folders[replica])
        return cut and cut.num_rows

    def given(self, replica: int, number: int = 1) -> list[SampleKey] | None:
        rows = read_more(self.folders[replica], number)
        return None if rows is None else sample_keys(rows)

    def has_been_dismissed(self, replica: int) -> bool:
        return work_has_ended(self.folders[replica])


def test_the_end_of_a_slow_replicas_work_goes_to_one_that_has_started_its_own_once_confirmed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 2, 10)
    bench.hear(1, 3)
    assert bench.cut_at(1) is None
    bench.hear(0, 2)
    assert bench.cut_at(1) == 6, "it keeps three, and half of seven"
    assert bench.given(0) is None
    bench.hear(1, 4)
    assert bench.given(0) is None, "not confirmed"
    bench.hear(1, 7, num_work=7, cut_number=1)
    assert bench.given(0) == bench.work[1][7:], "what it has started meanwhile stays with it"
    assert bench.board.take_back(1, set()) == bench.work[1][:7]


def test_the_replica_that_generates_and_has_most_left_is_cut(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 4, 6, 50)
    for replica, phase in ((1, WorkerPhase.GENERATING), (2, WorkerPhase.GENERATING), (3, WorkerPhase.LOADING)):
        bench.hear(replica, 0, phase)
    bench.hear(0, 1)
    assert [bench.cut_at(replica) for replica in (1, 2, 3)] == [None, 3, None]


def test_a_replica_that_loads_is_cut_where_no_other_can_be(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 8)
    bench.hear(1, 0, WorkerPhase.LOADING)
    bench.hear(0, 1, WorkerPhase.IDLE)
    assert bench.cut_at(1) == 4
    assert not bench.has_been_dismissed(0)


def test_with_nothing_to_give_an_idle_worker_may_end_and_a_busy_one_not_yet(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 2, 3)
    bench.hear(1, 2)
    bench.hear(0, 2)
    assert not bench.has_been_dismissed(0)
    bench.hear(0, 2, WorkerPhase.IDLE)
    assert bench.has_been_dismissed(0)


def test_what_may_kill_its_worker_stays_with_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 6)
    bench.begin(1, bench.work[1], num_kept=5)
    bench.hear(1, 0)
    bench.hear(0, 1)
    assert bench.cut_at(1) is None
    bench.begin(1, bench.work[1], num_kept=2)
    bench.hear(1, 0)
    bench.hear(0, 1)
    assert bench.cut_at(1) == 4


def test_while_nothing_changes_no_idle_replica_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, serve = list[int](), WorkBoard._serve

    def count(board: WorkBoard, replica: int, share: Any) -> None:
        served.append(replica)
        serve(board, replica, share)

    monkeypatch.setattr(WorkBoard, "_serve", count)
    bench = Bench(tmp_path, 1, 1, 10)
    bench.hear(2, 2)
    for _ in range(5):
        for replica in (0, 1):
            bench.hear(replica, 1, WorkerPhase.IDLE)
        bench.hear(2, 3)
    assert served == [0, 1], "the first has something cut for it, for the second there is nothing"
    bench.hear(2, 4, num_work=6, cut_number=1)
    bench.hear(1, 1, WorkerPhase.IDLE)
    assert bench.cut_at(2) == 5
    assert served == [0, 1, 1]


def test_a_queued_replica_keeps_its_place_once_nobody_needs_its_work(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 4, 1)
    bench.board.note_queued(2)
    bench.hear(0, 1, WorkerPhase.IDLE)
    bench.hear(1, 0)
    bench.hear(0, 1, WorkerPhase.IDLE)
    bench.hear(1, 1, num_work=2, cut_number=1)
    assert bench.given(0) == bench.work[1][2:]
    assert not bench.board.note_queued(2)
    bench.hear(0, 3, WorkerPhase.IDLE)
    assert bench.board.note_queued(2)


def test_a_queued_replica_gives_up_all_of_its_work_one_at_a_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 3, 1)
    assert not bench.board.note_queued(1)
    assert not bench.board.note_queued(2)
    bench.hear(0, 1)
    assert not bench.board.note_queued(2), "there is no hurry while the other generates"
    bench.hear(0, 1, WorkerPhase.IDLE)
    assert not bench.board.note_queued(1)
    assert bench.board.note_queued(2), "even of a single sample"
    assert bench.board.hand_out(2, set())
    assert bench.given(0) == bench.work[2]
    bench.hear(0, 2, WorkerPhase.IDLE)
    assert bench.board.note_queued(1)
    assert bench.board.hand_out(1, {bench.work[1][0]})
    assert bench.given(0, 2) == bench.work[1][1:]
    bench.hear(0, 4, WorkerPhase.IDLE)
    assert bench.has_been_dismissed(0)


def test_a_queued_replica_that_starts_in_time_keeps_its_work(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 4)
    bench.hear(0, 1, WorkerPhase.IDLE)
    bench.hear(1, 0, WorkerPhase.STARTING)
    assert not bench.board.note_queued(1)


def test_work_is_handed_out_among_all_that_have_nothing_to_do_or_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 1, 5)
    assert not bench.board.hand_out(2, set())
    assert bench.board.take_back(2, set()) == bench.work[2]
    bench.begin(2, bench.work[2])
    for replica in (0, 1):
        bench.hear(replica, 1, WorkerPhase.IDLE)
    assert bench.board.hand_out(2, set())
    assert bench.given(0) == bench.work[2][0::2]
    assert bench.given(1) == bench.work[2][1::2]
    assert bench.board.take_back(2, set()) == []


def test_a_replica_that_dies_with_a_cut_to_confirm_keeps_all_of_its_work(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 10)
    bench.hear(1, 2)
    bench.hear(0, 1, WorkerPhase.IDLE)
    done = set(bench.work[1][:2])
    assert bench.board.take_back(1, done) == bench.work[1][2:]
    bench.hear(0, 1, WorkerPhase.IDLE)
    assert not bench.has_been_dismissed(0), "its next worker may give some"
    bench.begin(1, bench.work[1][2:])
    bench.hear(1, 0)
    bench.hear(0, 1, WorkerPhase.IDLE)
    assert bench.cut_at(1) == 4, "the new worker is asked anew"


def test_what_is_given_while_the_taker_is_down_goes_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 3, 10)
    bench.hear(1, 2)
    bench.hear(0, 3)
    assert bench.board.take_back(0, set()) == bench.work[0]
    bench.hear(1, 2, num_work=6, cut_number=1)
    assert bench.given(1) == bench.work[1][6:]
    bench.begin(0, bench.work[0])
    assert bench.board.take_back(0, set()) == bench.work[0]
    assert bench.board.take_back(1, set()) == bench.work[1]


def test_nothing_is_given_to_a_worker_that_has_a_cut_to_confirm(tmp_path: Path) -> None:
    """It may see both between two heartbeats, and would keep other rows than the board believes."""
    bench = Bench(tmp_path, 2, 12, 2)
    bench.hear(1, 2)
    bench.hear(0, 2)
    assert bench.cut_at(1) == 7, "for replica 0"
    left = bench.board.take_back(0, set())
    bench.begin(0, left)
    bench.hear(0, 0)
    bench.hear(2, 2)
    assert bench.cut_at(0) == 1, "for replica 2"
    bench.hear(0, 2, num_work=2, cut_number=0)
    bench.hear(1, 2, num_work=7, cut_number=1)
    assert bench.given(0) is None
    assert bench.given(1) == bench.work[1][7:]


def test_a_replica_whose_last_worker_died_with_all_done_is_given_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 2, 10)
    bench.hear(1, 2)
    bench.hear(0, 2)
    assert bench.board.take_back(0, set(bench.work[0])) == []
    bench.hear(1, 2, num_work=6, cut_number=1)
    assert bench.given(1) == bench.work[1][6:]


def test_a_folder_that_cannot_be_written_ends_the_replica_whose_it_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 10)
    bench.hear(1, 2)
    shutil.rmtree(bench.folders[1])
    bench.hear(0, 1, WorkerPhase.IDLE)
    bench.hear(0, 1, WorkerPhase.IDLE)
    with pytest.raises(StoreError, match=r"cut\.json"):
        bench.hear(1, 3)
    bench.board.end(1)
    assert bench.board.take_back(1, set()) == bench.work[1], "nobody else was given any of it"
    bench.board.end(1)
    bench.hear(0, 1, WorkerPhase.IDLE)
    assert bench.has_been_dismissed(0)


def take_all(queue: WorkQueue) -> list[SampleKey]:
    return list(iter(queue.take, None))


def test_a_queue_takes_additions_after_a_cut_and_never_gives_back_what_it_has_taken(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 10)
    queue = WorkQueue(work_table(bench.work[1]), bench.folders[1])
    for _ in range(8):
        queue.take()
    bench.hear(1, 2)
    bench.hear(0, 1)
    queue.look()
    assert (queue.num_taken, queue.num_rows, queue.cut_number) == (8, 8, 1)
    bench.hear(1, 8, num_work=8, cut_number=1)
    assert bench.given(0) == bench.work[1][8:]
    assert take_all(queue) == []


def test_a_cut_waits_for_the_additions_that_it_takes_account_of(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 1, 5)
    queue = WorkQueue(work_table(bench.work[0]), bench.folders[0])
    assert take_all(queue) == bench.work[0]
    bench.hear(0, 1)
    assert bench.board.hand_out(2, set())
    more, aside = bench.folders[0] / "more-0001.parquet", tmp_path / "late.parquet"
    more.rename(aside)
    bench.hear(1, 1)
    assert bench.cut_at(0) == 3
    queue.look()
    assert (queue.num_rows, queue.cut_number) == (1, 0)
    aside.rename(more)
    queue.look()
    assert (queue.num_rows, queue.cut_number) == (3, 1)
    assert take_all(queue) == bench.work[2][:2]


def test_a_worker_that_was_let_go_or_has_ended_is_given_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 1, 5)
    bench.hear(0, 1, WorkerPhase.FINISHED)
    assert not bench.board.hand_out(2, set())
    bench.board.end(0)
    bench.board.end(2)
    bench.hear(1, 1, WorkerPhase.IDLE)
    assert bench.has_been_dismissed(1)
    bench.begin(2, bench.work[2])
    assert not bench.board.hand_out(2, set())


def test_nobody_waits_for_what_a_replica_that_is_over_would_have_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1, 9)
    bench.hear(1, 1)
    bench.hear(0, 1)
    assert bench.cut_at(1) == 5
    bench.board.end(1)
    bench.hear(0, 1, WorkerPhase.IDLE)
    assert bench.has_been_dismissed(0)
