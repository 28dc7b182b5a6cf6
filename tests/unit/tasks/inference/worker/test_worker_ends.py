"""How a worker ended is told by what it left: a result, an exit code, a signal, and by its scheduler's word."""

import os
import signal

import pytest

from infra.jobs.base import EndCause
from schemas.errors import (
    EngineError,
    EngineOutOfMemoryError,
    MilepostError,
    SetupError,
    TransientError,
    WorkerError,
    WorkerLostError,
)
from schemas.inference import WorkerResult
from schemas.states import WorkerOutcome
from tasks.inference.exchange.worker_files import EXIT_CODES, write_result
from tests.support.replica_bench import Bench, ScriptedLauncher, killed, leave, supervise


def test_want_of_memory_names_what_to_lower_and_what_the_engine_said(bench: Bench) -> None:
    with pytest.raises(EngineOutOfMemoryError) as caught:
        bench.run(leave(WorkerOutcome.OUT_OF_MEMORY, "the engine's words"))
    for part in ("replica 3", "batch size 48", "321", "0.6", "lower", "the engine's words", str(bench.log_path)):
        assert part in str(caught.value)


def test_an_exit_code_alone_tells_of_want_of_memory(bench: Bench) -> None:
    with pytest.raises(EngineOutOfMemoryError):
        bench.run(f"os._exit({EXIT_CODES[WorkerOutcome.OUT_OF_MEMORY]})")


def test_a_failed_worker_is_an_engine_error_with_message_and_log(bench: Bench) -> None:
    with pytest.raises(EngineError, match="a bug") as caught:
        bench.run(leave(WorkerOutcome.FAILED, "a bug"))
    assert str(bench.log_path) in str(caught.value)


@pytest.mark.parametrize("words", ["WorkerProc initialization failed", "Engine core initialization failed"])
def test_an_engine_whose_process_ran_out_of_memory_ran_out_of_memory(bench: Bench, words: str) -> None:
    failure = leave(WorkerOutcome.FAILED, f"vllm failed with Exception: {words}. See stack trace for root cause.")
    with pytest.raises(EngineOutOfMemoryError, match="batch size 48"):
        bench.run(f"print('torch.OutOfMemoryError: CUDA out of memory.', 'x' * 100_000, flush=True)\n{failure}")
    with pytest.raises(EngineError):
        bench.run(failure, log_path=bench.log_path.with_name("another.log"))


def test_a_failure_of_another_kind_is_no_want_of_memory_whatever_the_log_holds(bench: Bench) -> None:
    with pytest.raises(EngineError):
        bench.run(f"print('CUDA out of memory', flush=True)\n{leave(WorkerOutcome.FAILED, 'a bug')}")


DIED = "ERROR [multiproc_executor.py:315] Worker proc VllmWorker-1 died unexpectedly (exit code: {}), shutting down."


@pytest.mark.parametrize("words", ["cancelled", "Executor failed."])
@pytest.mark.parametrize(
    ("code", "end", "may_be_memory"),
    [(-9, "was killed by SIGKILL", True), (-11, "was killed by SIGSEGV", False), (None, "ended", False)],
)
def test_an_engine_that_lost_a_process_is_a_lost_worker(
    bench: Bench, words: str, code: int | None, end: str, may_be_memory: bool
) -> None:
    failure = leave(WorkerOutcome.FAILED, f"vllm failed with RuntimeError: {words}")
    with pytest.raises(WorkerLostError, match=f"replica 3 lost a process of its engine, which {end}") as caught:
        bench.run(f"print({DIED.format(code)!r}, flush=True)\n{failure}")
    assert caught.value.may_be_memory is may_be_memory
    assert ("lower rollout.max_concurrent_rollouts" in str(caught.value)) is may_be_memory


@pytest.mark.parametrize(
    ("code", "words"), [(1, "cancelled"), (-9, "a bug"), (-9, "cancelled by a bug"), ("", "cancelled")]
)
def test_an_error_of_an_engine_that_lost_no_process_surfaces(bench: Bench, code: int | str, words: str) -> None:
    failure = leave(WorkerOutcome.FAILED, f"vllm failed with RuntimeError: {words}")
    with pytest.raises(EngineError, match=r"replica 3 (failed: .*RuntimeError|lost .* exit code 1)"):
        bench.run(f"print({DIED.format(code)!r}, flush=True)\n{failure}")


def test_a_worker_that_others_told_to_stop_is_no_lost_one(bench: Bench) -> None:
    with pytest.raises(TransientError, match="cancelled"):
        bench.run(leave(WorkerOutcome.CANCELLED, "received SIGTERM"))


def test_a_killed_worker_is_told_with_signal_and_last_words(bench: Bench) -> None:
    with pytest.raises(WorkerLostError, match=r"SIGKILL.*memory") as caught:
        bench.run("print('last words', flush=True); os.kill(os.getpid(), 9)")
    assert "last words" in str(caught.value)


def test_a_kill_that_may_be_for_memory_says_what_to_lower_in_its_first_line(bench: Bench) -> None:
    engine = bench.spec.engine.model_copy(update={"batch_size": 1})
    bench.spec = bench.spec.model_copy(update={"engine": engine})
    with pytest.raises(WorkerLostError, match=r"SIGKILL.*lower gconfig.max_new_tokens or the context length"):
        bench.run("os.kill(os.getpid(), 9)")
    with pytest.raises(WorkerLostError) as caught:
        bench.run("os.kill(os.getpid(), 11)")
    assert "lower" not in str(caught.value)


def test_an_exit_without_result_is_told_with_its_code_and_log(bench: Bench) -> None:
    with pytest.raises(WorkerError, match=r"exit code 1.*\n(.*\n)*.*NameError"):
        bench.run("undefined_name")


def test_a_result_wins_over_a_bad_end(bench: Bench) -> None:
    code = leave(WorkerOutcome.COMPLETED).replace("os._exit(0)", "os.kill(os.getpid(), 11)")
    assert bench.run(code).outcome is WorkerOutcome.COMPLETED


def test_exit_codes_are_distinct_and_clear_of_those_with_a_meaning() -> None:
    codes = list(EXIT_CODES.values())
    assert len(set(codes)) == len(codes)
    assert not {1, 2, 126, 127, *(128 + number for number in signal.valid_signals())} & set(codes)
    assert EXIT_CODES[WorkerOutcome.COMPLETED] == os.EX_OK


@pytest.mark.parametrize(
    ("cause", "detail", "error", "words"),
    [
        (EndCause.OUT_OF_MEMORY, "OUT_OF_MEMORY", EngineOutOfMemoryError, "scheduler.slurm.memory"),
        (EndCause.TIME_LIMIT, "TIMEOUT (TimeLimit)", TransientError, "TimeLimit.*scheduler.slurm.time"),
        (EndCause.INFRASTRUCTURE, "NODE_FAIL", TransientError, "NODE_FAIL.*same command"),
        (EndCause.USER, "CANCELLED", WorkerError, "cancelled.*same command"),
        (EndCause.REFUSED, "QOSNotAllowed", SetupError, "never be started.*QOSNotAllowed"),
    ],
)
def test_what_a_scheduler_did_to_a_job_decides_what_its_end_means(
    bench: Bench, cause: EndCause, detail: str, error: type[MilepostError], words: str
) -> None:
    with pytest.raises(error, match=words):
        supervise(bench, ScriptedLauncher(killed(cause, detail)))


def test_a_scheduler_that_killed_for_memory_knows_better_than_the_worker(bench: Bench) -> None:
    write_result(bench.spec.output_dir, WorkerResult(outcome=WorkerOutcome.FAILED, message="a child died", num_done=0))
    with pytest.raises(EngineOutOfMemoryError):
        supervise(bench, ScriptedLauncher(killed(EndCause.OUT_OF_MEMORY, "OUT_OF_MEMORY")))


@pytest.mark.parametrize("cause", [EndCause.TIME_LIMIT, EndCause.INFRASTRUCTURE])
@pytest.mark.parametrize(
    ("outcome", "error", "words"),
    [
        (WorkerOutcome.OUT_OF_MEMORY, EngineOutOfMemoryError, "the engine's word"),
        (WorkerOutcome.FAILED, TransientError, "its word"),  # what fails in a job that is cut off is its doing
    ],
)
def test_a_workers_own_word_of_a_shortage_alone_comes_before_the_schedulers(
    bench: Bench, cause: EndCause, outcome: WorkerOutcome, error: type[MilepostError], words: str
) -> None:
    write_result(bench.spec.output_dir, WorkerResult(outcome=outcome, message="the engine's word", num_done=0))
    with pytest.raises(error, match=words):
        supervise(bench, ScriptedLauncher(killed(cause, "its word")))
