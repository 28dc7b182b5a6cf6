"""The watch of the queue: what is said of a job when Slurm is away, forgets, hides or tells twice."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.jobs.base import EndCause, JobState, JobStatus
from infra.slurm.client import StepEnd
from infra.slurm.queue_watch import QueueWatch
from schemas.errors import SetupError
from schemas.slurm import SlurmJobState
from tests.support.scripted_slurm import AWAY, ScriptedSlurm, ended

S = SlurmJobState
PATIENCE_S = 60.0
MODULE = "infra.slurm.queue_watch"


@pytest.fixture
def slurm() -> ScriptedSlurm:
    return ScriptedSlurm()


@pytest.fixture
def watch(slurm: ScriptedSlurm, tmp_path: Path) -> Iterator[QueueWatch]:
    watch = QueueWatch(slurm, "milepost-r", 0.01, tmp_path)
    yield watch
    slurm.problem = lambda question: None
    watch.stop()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def end_of(watch: QueueWatch, job: str) -> JobStatus:
    status = watch.wait(job, timeout_s=PATIENCE_S)
    assert status.state.is_terminal
    return status


def test_a_cancellation_that_slurm_does_not_hear_is_asked_for_until_it_does(
    slurm: ScriptedSlurm, watch: QueueWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}._UNHEARD_S", 0.1)
    slurm.show("1_0", S.PENDING)
    slurm.problem = lambda question: AWAY
    watch.add(["1_0"])
    assert watch.end(["1_0"]) == watch.unheard() == ["1_0"]
    slurm.problem = lambda question: None
    assert end_of(watch, "1_0").cause is EndCause.USER
    assert (slurm.cancelled, watch.unheard()) == (["1_0"], [])


def test_a_job_that_was_not_heard_whatever_the_answer_is_cancelled_again(
    slurm: ScriptedSlurm, watch: QueueWatch
) -> None:
    slurm.last_state = S.RUNNING
    slurm.show("1_0", S.RUNNING)
    watch.add(["1_0"])
    until(lambda: watch.status("1_0").state is JobState.RUNNING)
    slurm.problem = lambda question: setattr(slurm, "last_state", S.CANCELLED) if len(slurm.cancelled) > 1 else None
    assert watch.end(["1_0"]) == []
    assert slurm.cancelled[:2] == ["1_0", "1_0"]


def test_a_job_is_waited_for_once_however_often_it_is_cancelled(
    slurm: ScriptedSlurm, watch: QueueWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}._END_S", 1.0)
    slurm.last_state = S.COMPLETING
    slurm.show("1_0", S.RUNNING)
    watch.add(["1_0"])
    began = time.monotonic()
    assert watch.end(["1_0"]) == ["1_0"]
    assert time.monotonic() - began >= 1.0
    began = time.monotonic()
    assert watch.end(watch.unfinished()) == ["1_0"]
    assert time.monotonic() - began < 0.9
    assert (slurm.cancelled, watch.unheard()) == (["1_0"], [])


def test_slurm_that_cannot_be_used_for_long_is_told_to_whoever_waits(
    slurm: ScriptedSlurm, watch: QueueWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.show("1_0", S.PENDING)
    slurm.problem = lambda question: SetupError("squeue is not installed here")
    watch.add(["1_0"])
    until(lambda: len(slurm.asked) > 3)
    assert watch.wait("1_0", timeout_s=0.0).state is JobState.PENDING  # it may be back in a moment
    monkeypatch.setattr(f"{MODULE}._LOST_AFTER_S", 0.0)
    with pytest.raises(SetupError, match="squeue is not installed here"):
        watch.wait("1_0", timeout_s=PATIENCE_S)


def test_no_answer_is_never_the_end_of_a_job(
    slurm: ScriptedSlurm, watch: QueueWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}._LOST_AFTER_S", 0.0)
    slurm.show("1_0", S.RUNNING)
    watch.add(["1_0"])
    until(lambda: watch.status("1_0").state is JobState.RUNNING)
    slurm.problem = lambda question: AWAY
    assert watch.wait("1_0", timeout_s=0.1).state is JobState.RUNNING


def test_an_unexpected_error_is_raised_where_its_job_is_waited_for(slurm: ScriptedSlurm, watch: QueueWatch) -> None:
    slurm.show("1_0", S.RUNNING)
    watch.add(["1_0"])
    slurm.problem = lambda question: ValueError("a line that nobody expected")
    with pytest.raises(ValueError, match="nobody expected"):
        watch.wait("1_0", timeout_s=PATIENCE_S)
    slurm.problem = lambda question: None
    slurm.show("1_0", S.COMPLETED)
    until(lambda: watch.status("1_0").state is JobState.SUCCEEDED)


def test_what_goes_wrong_with_one_job_hides_no_other(slurm: ScriptedSlurm, watch: QueueWatch) -> None:
    for job in ("1_0", "1_1"):
        slurm.show(job, S.COMPLETED)
    problem = ValueError("a line that nobody expected")
    slurm.problem = lambda question: problem if question == "end_of 1_0" else None
    watch.add(["1_0", "1_1"])
    until(lambda: watch.status("1_1").state is JobState.SUCCEEDED)
    assert not watch.status("1_0").state.is_terminal


def test_a_question_that_slurm_does_not_answer_is_the_last_of_its_look(slurm: ScriptedSlurm, watch: QueueWatch) -> None:
    jobs = [f"1_{number}" for number in range(5)]
    for job in jobs:
        slurm.show(job, S.COMPLETED)
    slurm.problem = lambda question: AWAY if question.startswith("end_of") else None
    watch.add(jobs)
    until(lambda: slurm.asked.count("jobs") > 3)
    asked = list(slurm.asked)
    assert len([question for question in asked if question.startswith("end_of")]) <= asked.count("jobs")
    assert not any(watch.status(job).state.is_terminal for job in jobs)
    slurm.problem = lambda question: None
    assert all(end_of(watch, job).state is JobState.SUCCEEDED for job in jobs)


def test_a_job_that_slurm_forgot_is_unknown_and_nobody_cancelled_it(
    slurm: ScriptedSlurm, watch: QueueWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}._CANCELLED_AFTER_S", 0.0)
    watch.add(["1_0"])
    until(lambda: slurm.asked.count("jobs") > 3)
    assert watch.status("1_0").state is JobState.PENDING
    monkeypatch.setattr(f"{MODULE}._LOST_AFTER_S", 0.0)
    assert end_of(watch, "1_0").cause is EndCause.INFRASTRUCTURE


def test_a_job_that_was_forgotten_is_told_by_the_accounting(slurm: ScriptedSlurm, watch: QueueWatch) -> None:
    slurm.accounting = {"1_0": ended(S.CANCELLED), "1_1": ended(S.FAILED, 7)}
    watch.add(["1_0", "1_1"])
    assert end_of(watch, "1_0").cause is EndCause.USER
    assert end_of(watch, "1_1").exit_code == 7


def test_a_job_that_we_cancelled_and_that_left_no_record_is_over(
    slurm: ScriptedSlurm, watch: QueueWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}._CANCELLED_AFTER_S", 0.05)
    watch.add(["1_0"])
    assert watch.end(["1_0"]) == []
    assert watch.status("1_0").cause is EndCause.USER


@pytest.mark.parametrize("state", [S.SUSPENDED, S.STOPPED])
def test_a_job_that_stands_still_says_so(slurm: ScriptedSlurm, watch: QueueWatch, state: SlurmJobState) -> None:
    slurm.show("1_0", state)
    watch.add(["1_0"])
    until(lambda: watch.status("1_0").is_suspended)
    assert watch.status("1_0").state is JobState.RUNNING
    slurm.show("1_0", S.RUNNING)
    until(lambda: not watch.status("1_0").is_suspended)


def test_what_was_submitted_twice_is_ended_when_it_is_seen(slurm: ScriptedSlurm, watch: QueueWatch) -> None:
    watch.keep_only("2", "r/replica-0 +0 aa")
    slurm.show("1_0", S.PENDING, comment="r/replica-0 +0 aa")
    slurm.show("2_0", S.RUNNING, comment="r/replica-0 +0 aa")
    slurm.show("3_0", S.RUNNING, comment="another")
    watch.add(["2_0", "3_0"])
    until(lambda: slurm.records["1_0"].state is S.CANCELLED)
    slurm.show("2_0", S.COMPLETED, comment="r/replica-0 +0 aa")
    slurm.show("3_0", S.COMPLETED, comment="another")
    assert end_of(watch, "2_0").state is end_of(watch, "3_0").state is JobState.SUCCEEDED
    slurm.show("4_0", S.RUNNING, comment="r/replica-0 +0 aa")
    watch.stop()
    assert slurm.cancelled == ["1_0", "4_0"]


def test_want_of_memory_in_a_step_is_told_by_the_accounting(
    slurm: ScriptedSlurm, watch: QueueWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.slurm.endings._STEPS_S", PATIENCE_S)
    slurm.show("1_0", S.FAILED)
    slurm.ends["1_0"] = ended(S.FAILED, 1)
    slurm.accounting = {}
    watch.add(["1_0"])
    until(lambda: slurm.asked.count("accounted_ends") > 3)
    assert not watch.status("1_0").state.is_terminal  # it lags
    slurm.accounting = {"1_0": ended(S.FAILED, 1, 0, StepEnd(state=S.OUT_OF_MEMORY, exit_code=0, signal=125))}
    assert end_of(watch, "1_0").cause is EndCause.OUT_OF_MEMORY


def test_an_accounting_that_says_nothing_is_not_waited_for_longer_than_it_lags(
    slurm: ScriptedSlurm, watch: QueueWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.slurm.endings._STEPS_S", 0.1)
    for job in ("1_0", "1_1"):
        slurm.show(job, S.FAILED)
        slurm.ends[job] = ended(S.FAILED, 7)
    slurm.accounting = {}
    watch.add(["1_0", "1_1"])
    assert [end_of(watch, job).exit_code for job in ("1_0", "1_1")] == [7, 7]
    assert slurm.asked.count("accounted_ends") < len([each for each in slurm.asked if each.startswith("end_of")])


def test_without_accounting_a_failure_is_told_at_once(slurm: ScriptedSlurm, watch: QueueWatch) -> None:
    slurm.show("1_0", S.FAILED)
    slurm.ends["1_0"] = ended(S.FAILED, 7)
    watch.add(["1_0"])
    assert end_of(watch, "1_0").exit_code == 7
    assert slurm.asked.count("accounted_ends") == 1


def test_what_can_never_start_is_over_once_its_cancellation_is_heard(slurm: ScriptedSlurm, watch: QueueWatch) -> None:
    slurm.show("1_0", S.PENDING, reason="QOSNotAllowed")
    slurm.problem = lambda question: AWAY if question == "cancel" else None
    watch.add(["1_0"])
    until(lambda: slurm.asked.count("cancel") > 1)
    assert not watch.status("1_0").state.is_terminal
    slurm.problem = lambda question: None
    status = end_of(watch, "1_0")
    assert (status.cause, status.detail, slurm.cancelled) == (EndCause.REFUSED, "QOSNotAllowed", ["1_0"])
