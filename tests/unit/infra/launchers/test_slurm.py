"""The Slurm launcher when answers are lost, Slurm is away, or jobs do not end; on a real one: tests/integration."""

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from infra.jobs.base import LaunchSpec, Placement
from infra.launchers.slurm import SlurmLauncher
from schemas.errors import SetupError, TransientError
from schemas.slurm import SlurmConfig, SlurmJobState
from tests.support.scripted_slurm import AWAY, ScriptedSlurm

S = SlurmJobState


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.launchers.slurm._RETRY_S", 0.01)


def launcher(slurm: ScriptedSlurm, folder: Path, stopping: threading.Event | None = None) -> SlurmLauncher:
    config = SlurmConfig(poll_interval_s=0.1)
    return SlurmLauncher(slurm, config, run_key="a run", folder=folder / "slurm", stopping=stopping)


def specs(folder: Path, count: int) -> list[LaunchSpec]:
    return [
        LaunchSpec(
            key=f"r/replica-{number}",
            argv=(sys.executable,),
            cwd=folder,
            log_path=folder / f"{number}.log",
            placement=Placement(num_gpus=0, num_cpus=1),
        )
        for number in range(count)
    ]


class LateSlurm(ScriptedSlurm):
    """Loses the answer to the first submission, which shows up in the queue only after the second."""

    def submit(self, script: Path, options: Sequence[str], env: Mapping[str, str]) -> str:
        array = super().submit(script, options, env)
        if array == "1":
            self.late = self.records.pop("1_0")
            self.show("0_0", S.COMPLETED)  # so that the next one has another number
            raise TransientError("sbatch did not answer within 60 s")
        self.records["1_0"] = self.late
        return array


def test_a_submission_that_shows_up_late_is_ended(tmp_path: Path) -> None:
    slurm = LateSlurm()
    bench = launcher(slurm, tmp_path)
    assert bench.submit(specs(tmp_path, 1)) == ["2_0"]
    deadline = time.monotonic() + 60
    while "1_0" not in slurm.cancelled:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert slurm.records["2_0"].state is S.RUNNING
    bench.close()
    assert slurm.cancelled == ["1_0", "2_0"]


def test_a_lost_submission_is_looked_up_before_it_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.launchers.slurm._PATIENCE_S", -1.0)
    slurm = ScriptedSlurm()
    accept = slurm.accept

    def lose(comment: str, size: int) -> str:
        accept(comment, size)
        raise AWAY

    monkeypatch.setattr(slurm, "accept", lose)
    bench = launcher(slurm, tmp_path)
    assert bench.submit(specs(tmp_path, 2)) == ["1_0", "1_1"]
    bench.close()
    assert slurm.cancelled == ["1_0", "1_1"]


def test_nothing_is_submitted_again_before_the_queue_was_seen(tmp_path: Path) -> None:
    slurm = ScriptedSlurm()

    def problem(question: str) -> Exception | None:
        is_away = slurm.asked.count(question) <= {"submit": 1, "jobs": 3}.get(question, 0)
        return AWAY if is_away else None

    slurm.problem = problem
    bench = launcher(slurm, tmp_path)
    bench.submit(specs(tmp_path, 1))
    assert slurm.asked[:6] == ["submit", "jobs", "jobs", "jobs", "jobs", "submit"]
    bench.close()


def test_a_run_that_ends_does_not_wait_for_slurm_to_take_its_jobs(tmp_path: Path) -> None:
    slurm, stopping = ScriptedSlurm(), threading.Event()
    slurm.problem = lambda question: AWAY
    threading.Timer(0.2, stopping.set).start()
    began = time.monotonic()
    with pytest.raises(TransientError):
        launcher(slurm, tmp_path, stopping).submit(specs(tmp_path, 2))
    assert time.monotonic() - began < 60


def test_what_a_lost_submission_left_is_ended_at_the_close(tmp_path: Path) -> None:
    slurm, stopping = ScriptedSlurm(), threading.Event()

    def problem(question: str) -> Exception | None:
        if question != "submit":
            return None
        stopping.set()
        return AWAY

    slurm.problem = problem
    bench = launcher(slurm, tmp_path, stopping)
    with pytest.raises(TransientError):
        bench.submit(specs(tmp_path, 1))
    (script,) = (tmp_path / "slurm").glob("*.sh")
    comment = next(line for line in script.read_text().splitlines() if "comment" in line).split('"')[1]
    slurm.accept(comment, 1)
    bench.close()
    assert slurm.cancelled == ["1_0"]


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_is_submitted_while_the_run_ends_is_cancelled(tmp_path: Path, is_closed: bool) -> None:
    slurm, stopping = ScriptedSlurm(max_array_size=1), threading.Event()
    bench = launcher(slurm, tmp_path, stopping)

    def stop(question: str) -> None:
        if question == "submit" and slurm.asked.count("submit") == 2:
            stopping.set()
            if is_closed:
                bench.close()

    slurm.problem = stop
    with pytest.raises(TransientError, match="the run ended while its jobs were submitted"):
        bench.submit(specs(tmp_path, 3))
    assert slurm.asked.count("submit") == 2
    assert sorted(slurm.cancelled) == ["1_0", "2_0"]
    with pytest.raises(TransientError):
        bench.submit(specs(tmp_path, 1))
    assert slurm.asked.count("submit") == 2


def test_more_replicas_than_an_array_may_have_are_several_arrays(tmp_path: Path) -> None:
    slurm = ScriptedSlurm(max_array_size=3)
    bench = launcher(slurm, tmp_path)
    jobs = bench.submit(specs(tmp_path, 7))
    assert jobs == ["1_0", "1_1", "1_2", "2_0", "2_1", "2_2", "3_0"]
    bench.close()
    assert set(slurm.cancelled) == set(jobs)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SetupError("sbatch refused the job")])
def test_all_are_submitted_or_none_whatever_happens(tmp_path: Path, error: BaseException) -> None:
    slurm = ScriptedSlurm(max_array_size=1)

    def problem(question: str) -> Exception | None:
        if question == "submit" and slurm.asked.count("submit") == 2:
            raise error
        return None

    slurm.problem = problem
    bench = launcher(slurm, tmp_path)
    with pytest.raises(type(error)):
        bench.submit(specs(tmp_path, 2))
    assert slurm.cancelled == ["1_0"]
    bench.close()


def test_jobs_of_an_earlier_attempt_that_are_cancelled_and_do_not_end_hold_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("infra.slurm.queue_watch._END_S", 2.0)
    slurm = ScriptedSlurm()
    slurm.last_state = S.COMPLETING  # its node does not answer
    slurm.show("1_0", S.RUNNING)
    slurm.show("1_1", S.COMPLETED)
    bench = launcher(slurm, tmp_path)
    assert bench.end_earlier_jobs() == 1
    assert "not over yet: 1_0" in caplog.text
    began = time.monotonic()
    bench.close()
    assert time.monotonic() - began < 1.0
    assert slurm.cancelled == ["1_0"]


def test_jobs_of_an_earlier_attempt_are_asked_for_until_slurm_answers(tmp_path: Path) -> None:
    slurm = ScriptedSlurm()
    slurm.show("1_0", S.RUNNING)
    slurm.problem = lambda question: AWAY if slurm.asked.count("jobs") < 3 else None
    bench = launcher(slurm, tmp_path)
    assert bench.end_earlier_jobs() == 1
    assert slurm.records["1_0"].state is S.CANCELLED
    bench.close()


def test_jobs_that_slurm_could_not_be_asked_to_end_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("infra.slurm.queue_watch._UNHEARD_S", 0.2)
    slurm = ScriptedSlurm()
    bench = launcher(slurm, tmp_path)
    jobs = bench.submit(specs(tmp_path, 2))
    slurm.problem = lambda question: AWAY
    began = time.monotonic()
    for job in jobs:
        bench.cancel(job)
    bench.close()
    assert time.monotonic() - began < 20
    assert "could not be asked to end 1_0, 1_1" in caplog.text
