"""A replica's launches by a scheduler that is away: at the first the run ends, at a later one it waits."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from infra.jobs.base import EndCause, JobStatus, LaunchSpec
from schemas.errors import TransientError, WorkerError
from schemas.inference import Heartbeat
from schemas.states import WorkerOutcome, WorkerPhase
from tasks.inference.runs.session import RunSession
from tasks.inference.stage import run_to_end
from tests.support.replica_bench import ScriptedLauncher, killed
from tests.support.run_sessions import start, work_of
from tests.support.scripted_slurm import AWAY

NODE_FAIL, CANCELLED = killed(EndCause.INFRASTRUCTURE, "NODE_FAIL"), killed(EndCause.USER, "CANCELLED")


class AwayLauncher(ScriptedLauncher):
    """A scheduler that does not take some of the submissions, counted from 1; told by a test, the run stops at one."""

    def __init__(self, session: RunSession, *statuses: JobStatus, away: Sequence[int], stops_at: int = 0) -> None:
        super().__init__(*statuses)
        self.num_submissions = 0
        self._session = session
        self._away = away
        self._stops_at = stops_at

    def submit(self, specs: Sequence[LaunchSpec]) -> list[str]:
        self.num_submissions += 1
        if self.num_submissions == self._stops_at:
            self._session.stopping.set()
        if self.num_submissions in self._away:
            raise AWAY
        return super().submit(specs)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.inference.stage._SUBMIT_AGAIN_S", 0.01)


def test_a_replica_that_goes_on_waits_for_a_scheduler_that_is_away(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        session.replicas.launcher = launcher = AwayLauncher(session, NODE_FAIL, CANCELLED, away=(2, 3, 4))
        with pytest.raises(WorkerError, match="CANCELLED"):
            run_to_end(session.replicas.specs[0], session.replicas, on_progress=lambda _: None)
        assert launcher.num_submissions == 5


def test_what_waits_for_a_scheduler_that_is_away_is_made_by_those_that_have_nothing_to_do(tmp_path: Path) -> None:
    class IdleNeighbour(AwayLauncher):
        def submit(self, specs: Sequence[LaunchSpec]) -> list[str]:
            if self.num_submissions == 2:
                num_own = len(work_of(session.replicas.specs[1]))
                idle = Heartbeat(phase=WorkerPhase.IDLE, pid=1, time=0.0, num_work=num_own, num_started=num_own)
                session.replicas.board.note(1, idle)
            return super().submit(specs)

    with start(tmp_path, num_replicas=2) as session:
        session.replicas.launcher = launcher = IdleNeighbour(session, NODE_FAIL, away=range(2, 100))
        result = run_to_end(session.replicas.specs[0], session.replicas, on_progress=lambda _: None)
        assert (result.outcome, launcher.num_submissions) == (WorkerOutcome.COMPLETED, 3)
        assert not session.replicas.board.take_back(0, ())
        assert len(session.replicas.board.take_back(1, ())) == 12


def test_a_run_that_stops_waits_no_longer(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        session.replicas.launcher = launcher = AwayLauncher(session, NODE_FAIL, away=(2, 3), stops_at=3)
        with pytest.raises(TransientError, match="does not answer"):
            run_to_end(session.replicas.specs[0], session.replicas, on_progress=lambda _: None)
        assert launcher.num_submissions == 3


def test_a_first_submission_that_fails_ends_the_run_with_no_word_from_each_replica(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with start(tmp_path, num_replicas=2) as session:
        session.replicas.launcher = launcher = AwayLauncher(session, away=(1,))
        for spec in session.replicas.specs:
            with pytest.raises(TransientError, match="does not answer"):
                run_to_end(spec, session.replicas, on_progress=lambda _: None)
        assert launcher.num_submissions == 1
    assert "does not answer" not in caplog.text
