"""A session whose replicas are started again: what their next worker gets, and what the run's state says of it."""

from pathlib import Path

import pytest

from infra.fileroot.batch_sizes import BatchSizeMemory
from infra.launchers.local import LocalLauncher
from schemas.errors import StoreError
from schemas.identity import SampleKey
from schemas.inference import SetAsideItem, WorkerSpec
from tasks.inference.exchange.journal import JournalWriter
from tasks.inference.planning.replica_spec import NextLaunch
from tasks.inference.runs.session import RunSession
from tests.support.run_sessions import KIND, start, work_of
from tests.support.sample_records import record


def finish(spec: WorkerSpec, keys: list[SampleKey]) -> None:
    writer = JournalWriter(spec.output_dir)
    for key in keys:
        writer.append(record(1).model_copy(update={"item_id": key.item_id, "repeat": key.repeat}))
    writer.close()


def again(session: RunSession, launch: NextLaunch, replica: int = 0) -> WorkerSpec:
    spec = session.replicas.start_again(replica, launch)
    assert spec is not None
    return spec


def test_the_next_worker_gets_what_is_left_in_a_folder_of_its_own(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        (first,) = session.replicas.specs
        work = work_of(first)
        finish(first, work[:5])
        second = again(session, NextLaunch(batch_size=4, reason="died", shrank=True))
        assert work_of(second) == work[5:]
        assert (second.attempt, second.engine.batch_size, second.num_alone) == (2, 4, 0)
        assert second.output_dir != first.output_dir
        finish(second, work[5:7])
        assert work_of(again(session, NextLaunch(batch_size=4, reason="died"))) == work[7:]


def test_suspects_come_first_and_what_is_set_aside_before_them(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        work = work_of(session.replicas.specs[0])
        finish(session.replicas.specs[0], work[:1])
        launch = NextLaunch(
            batch_size=8,
            reason="died",
            alone=(work[7], work[0], work[3]),
            set_aside=(SetAsideItem(item_id=work[2].item_id, reason="set aside"),),
        )
        spec = again(session, launch)
        assert work_of(spec) == [*work[2:4], work[7], work[1], *work[4:7], *work[8:]]
        assert spec.num_alone == 3


def test_jobs_that_cannot_be_submitted_are_submitted_once(tmp_path: Path) -> None:
    submissions: list[int] = []

    def submit() -> list[str]:
        submissions.append(1)
        raise MemoryError("no room to fork")

    with start(tmp_path, num_replicas=2) as session:
        for replica in (0, 1):
            with pytest.raises(MemoryError):
                session.replicas.job_of(replica, submit)
    assert submissions == [1]


def test_workers_that_end_with_the_session_are_not_started_again(tmp_path: Path) -> None:
    class Closing(LocalLauncher):
        was_stopping = False

        def close(self) -> None:
            self.was_stopping = session.stopping.is_set()

    with start(tmp_path) as session:
        session.replicas.launcher = launcher = Closing()
        assert not session.stopping.is_set()
    assert launcher.was_stopping


def test_a_folder_that_another_controller_has_made_is_left_to_it(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        session.record.run.replica_dir(2, 0).mkdir(parents=True)
        with pytest.raises(StoreError, match="another process has made it"):
            session.replicas.start_again(0, NextLaunch(batch_size=8, reason="died"))


def test_a_replica_with_nothing_left_is_not_started_again(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        finish(session.replicas.specs[0], work_of(session.replicas.specs[0]))
        assert session.replicas.start_again(0, NextLaunch(batch_size=8, reason="died")) is None
        assert session.record.attempt == 1


def test_the_state_tells_of_each_start_and_the_smallest_batch_is_remembered(tmp_path: Path) -> None:
    with start(tmp_path, num_replicas=2) as session:
        again(session, NextLaunch(batch_size=2, reason="no memory", shrank=True))
        again(session, NextLaunch(batch_size=4, reason="no memory", shrank=True), replica=1)
        again(session, NextLaunch(batch_size=4, reason="hung"), replica=1)
        attempts = session.record.run.read_state().attempts
        assert [(each.number, each.replica, each.batch_size, each.reason) for each in attempts] == [
            (1, None, 8, ""),
            (2, 0, 2, "no memory"),
            (3, 1, 4, "no memory"),
            (4, 1, 4, "hung"),
        ]
        assert session.record.state.last_launch.num_replicas == 2
        assert session.record.state.differences == (
            "replica 0 was started again at batch size 2",
            "replica 1 was started again at batch size 4",
        )
        session.replicas.record_results(())
        assert BatchSizeMemory(tmp_path, KIND, configured=8, grow_after=3).starting_size() == 2


def test_a_resumed_run_is_compared_with_the_last_start_of_all_replicas(tmp_path: Path) -> None:
    with start(tmp_path, num_replicas=2) as session:
        again(session, NextLaunch(batch_size=8, reason="hung"))
    with start(tmp_path, num_replicas=2) as resumed:
        assert resumed.record.run.run_id == session.record.run.run_id
        assert (resumed.record.attempt, [spec.attempt for spec in resumed.replicas.specs]) == (3, [3, 3])
        assert resumed.record.state.differences == ("replica 0 was started again at batch size 8",)


def test_work_moves_only_where_there_are_others(tmp_path: Path) -> None:
    with start(tmp_path / "one") as alone, start(tmp_path / "two", num_replicas=2) as two:
        assert [spec.awaits_more for spec in (*alone.replicas.specs, *two.replicas.specs)] == [False, True, True]
