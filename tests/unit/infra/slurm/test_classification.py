"""What the end of a job means: every case as Slurm 22.05 was seen to tell it."""

import signal
from dataclasses import replace

import pytest

from infra.jobs.base import EndCause, JobState
from infra.slurm.classification import classify_end
from infra.slurm.client import JobEnd, StepEnd
from schemas.slurm import SlurmJobState

S = SlurmJobState


def end(
    state: SlurmJobState, code: int = 0, number: int = 0, *, reason: str = "", steps: tuple[StepEnd, ...] = ()
) -> JobEnd:
    return JobEnd(job=StepEnd(state=state, exit_code=code, signal=number), reason=reason, steps=steps)


@pytest.mark.parametrize(
    ("seen", "state", "cause", "exit_code", "number"),
    [
        (end(S.COMPLETED), JobState.SUCCEEDED, EndCause.PROCESS, 0, None),
        (end(S.FAILED, 7, reason="NonZeroExitCode"), JobState.FAILED, EndCause.PROCESS, 7, None),
        (end(S.FAILED, 0, 9, reason="JobLaunchFailure"), JobState.KILLED, EndCause.PROCESS, None, signal.SIGKILL),
        (end(S.FAILED, 137), JobState.KILLED, EndCause.PROCESS, None, signal.SIGKILL),
        (end(S.FAILED, 0, 53), JobState.KILLED, EndCause.INFRASTRUCTURE, None, None),
        (end(S.TIMEOUT, 0, 15), JobState.KILLED, EndCause.TIME_LIMIT, None, signal.SIGTERM),
        (end(S.TIMEOUT), JobState.KILLED, EndCause.TIME_LIMIT, None, None),
        (end(S.DEADLINE), JobState.KILLED, EndCause.TIME_LIMIT, None, None),
        (end(S.OUT_OF_MEMORY, 0, 125), JobState.KILLED, EndCause.OUT_OF_MEMORY, None, None),
        (end(S.CANCELLED, 0, 15), JobState.KILLED, EndCause.USER, None, signal.SIGTERM),
        (end(S.NODE_FAIL), JobState.KILLED, EndCause.INFRASTRUCTURE, None, None),
        (end(S.BOOT_FAIL), JobState.KILLED, EndCause.INFRASTRUCTURE, None, None),
        (end(S.PREEMPTED), JobState.KILLED, EndCause.INFRASTRUCTURE, None, None),
    ],
)
def test_an_end_is_classified(
    seen: JobEnd, state: JobState, cause: EndCause, exit_code: int | None, number: int | None
) -> None:
    status = classify_end(seen)
    assert (status.state, status.cause, status.exit_code, status.signal) == (state, cause, exit_code, number)
    assert seen.job.state.value in status.detail


def test_want_of_memory_in_a_step_counts_before_what_the_job_says() -> None:
    step = StepEnd(state=S.OUT_OF_MEMORY, exit_code=0, signal=125)
    assert classify_end(end(S.FAILED, 1, steps=(step,))).cause is EndCause.OUT_OF_MEMORY
    assert classify_end(end(S.TIMEOUT, steps=(step,))).cause is EndCause.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("words", "is_memory"),
    [
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.batch.",
            True,
        ),
        ("slurmstepd: error: StepId=7.batch exceeded memory limit (412 > 100), being killed", True),
        ("noise\nsrun: error: n1: task 0: Out Of Memory\n", True),
        ("torch: CUDA out of memory. oom-kill is a word in a text", False),
        ("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026 DUE TO TIME LIMIT ***", False),
    ],
)
def test_slurms_own_words_tell_of_memory_and_a_models_words_do_not(words: str, is_memory: bool) -> None:
    assert (classify_end(end(S.FAILED, 0, 9), words).cause is EndCause.OUT_OF_MEMORY) == is_memory


def test_a_node_that_cannot_write_the_folder_of_the_run_is_told() -> None:
    status = classify_end(replace(end(S.FAILED, 0, 53, reason="JobLaunchFailure"), node="n7"))
    assert status.cause is EndCause.INFRASTRUCTURE
    assert "n7 cannot write the run's folder" in status.detail


def test_every_state_is_waiting_running_or_over() -> None:
    assert not [state for state in S if state.is_waiting and state.is_terminal]
    over = {state for state in S if state.is_terminal}
    assert S.COMPLETING not in over
    assert S.REQUEUED not in over
    assert len(over) == 12


def test_the_words_of_squeue_and_sacct_are_read() -> None:
    assert S.parse("CANCELLED by 0") is S.CANCELLED
    assert S.parse("OUT_OF_ME+") is S.UNKNOWN
    assert S.parse("CANCELLED+") is S.CANCELLED
    assert S.parse("A_NEW_ONE") is S.UNKNOWN
    assert not S.UNKNOWN.is_terminal
