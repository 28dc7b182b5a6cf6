"""How a worker ended is told by what it left: a result, an exit code, a signal, or nothing in time."""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from infra.launchers.base import EndCause, JobState, JobStatus, LaunchSpec, Placement
from infra.launchers.local import LocalLauncher
from schemas.errors import (
    EngineError,
    EngineOutOfMemoryError,
    MilepostError,
    SetupError,
    TransientError,
    WorkerError,
    WorkerLostError,
)
from schemas.inference import EngineSpec, Heartbeat, SamplingSpec, WorkerResult, WorkerSpec
from schemas.progress import ReplicaProgress
from schemas.states import WorkerOutcome, WorkerPhase
from tasks.inference.progress import ProgressMeter
from tasks.inference.supervision import ReplicaLaunch, log_tail, run_replica
from tasks.inference.worker_files import EXIT_CODES, read_spec, write_heartbeat, write_result


def worker_spec(folder: Path) -> WorkerSpec:
    folder.mkdir(exist_ok=True)
    return WorkerSpec(
        run_id="run",
        replica=3,
        attempt=2,
        engine=EngineSpec(
            engine="vllm", model_path=folder, dtype="auto", max_model_len=64, batch_size=48, memory_ratio=0.6, seed=0
        ),
        sampling=SamplingSpec(temperature=0.0, top_p=1.0, top_k=-1, max_new_tokens=321, eos_token_ids=(2,)),
        seed=0,
        prompts_path=folder / "prompts.parquet",
        work_path=folder / "work.parquet",
        output_dir=folder,
    )


class Bench:
    """Runs a replica whose interpreter is a script: it gets the worker's arguments and does what the test says."""

    def __init__(self, folder: Path) -> None:
        self.spec = worker_spec(folder / "it's a $(folder)")
        self.log_path = folder / "logs" / "replica.log"
        self._program = folder / "python"
        self.launcher = LocalLauncher(grace_s=1.0)
        self.progress: list[ReplicaProgress] = []
        self.stopping: threading.Event | None = None

    def run(
        self,
        code: str,
        *,
        setup_timeout_s: float = 60.0,
        hang_timeout_s: float | None = None,
        log_path: Path | None = None,
    ) -> WorkerResult:
        prelude = "import json, os, pathlib, sys, time\nfolder = pathlib.Path(sys.argv[-2]).parent\n"
        self._program.write_text(f"#!{sys.executable}\n{prelude}{code}\n")
        self._program.chmod(0o755)
        launch = ReplicaLaunch(
            engine_python=self._program,
            placement=Placement(num_gpus=0, num_cpus=1),
            log_path=log_path or self.log_path,
            setup_timeout_s=setup_timeout_s,
            hang_timeout_s=hang_timeout_s,
            poll_interval_s=0.05,
            stopping=self.stopping,
        )
        return run_replica(self.spec, self.launcher, launch, on_progress=self.tell)

    def tell(self, progress: ReplicaProgress) -> None:
        self.progress.append(progress)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def leave(outcome: WorkerOutcome, message: str = "") -> str:
    result = WorkerResult(outcome=outcome, message=message, num_done=5)
    return f"(folder / 'result.json').write_text({result.model_dump_json()!r}); os._exit({EXIT_CODES[outcome]})"


def beat(phase: WorkerPhase, num_done: int, now: float) -> str:
    heartbeat = Heartbeat(phase=phase, pid=1, time=now, num_done=num_done, num_work=9, batch_size=48)
    write = f"(folder / 'new').write_text({heartbeat.model_dump_json()!r})"
    return f"{write}; (folder / 'new').replace(folder / 'heartbeat.json')"


def test_a_completed_worker_gives_its_result(bench: Bench) -> None:
    assert bench.run(leave(WorkerOutcome.COMPLETED)).num_done == 5


def test_the_worker_is_asked_for_with_a_spec_that_reads_back(bench: Bench) -> None:
    code = "(folder / 'argv').write_text(json.dumps([sys.argv[1:], os.environ['PYTHONPATH']]))\n"
    bench.run(code + leave(WorkerOutcome.COMPLETED))
    argv = (bench.spec.output_dir / "argv").read_text()
    assert '"-P", "-m", "tasks.inference.worker"' in argv
    assert '"--stop-on-stdin-eof"' in argv
    assert read_spec(bench.spec.output_dir / "spec.json") == bench.spec


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


def test_a_worker_that_others_told_to_stop_is_no_lost_one(bench: Bench) -> None:
    with pytest.raises(TransientError, match="cancelled"):
        bench.run(leave(WorkerOutcome.CANCELLED, "received SIGTERM"))


def test_a_killed_worker_is_told_with_signal_and_last_words(bench: Bench) -> None:
    with pytest.raises(WorkerError, match=r"SIGKILL.*memory") as caught:
        bench.run("print('last words', flush=True); os.kill(os.getpid(), 9)")
    assert "last words" in str(caught.value)


def test_an_exit_without_result_is_told_with_its_code_and_log(bench: Bench) -> None:
    with pytest.raises(WorkerError, match=r"exit code 1.*\n(.*\n)*.*NameError"):
        bench.run("undefined_name")


def test_a_result_wins_over_a_bad_end(bench: Bench) -> None:
    code = leave(WorkerOutcome.COMPLETED).replace("os._exit(0)", "os.kill(os.getpid(), 11)")
    assert bench.run(code).outcome is WorkerOutcome.COMPLETED


def test_a_worker_that_is_not_ready_in_time_is_ended(bench: Bench) -> None:
    code = f"(folder / 'pid').write_text(str(os.getpid()))\n{beat(WorkerPhase.LOADING, 0, 10.0)}\ntime.sleep(60)"
    with pytest.raises(WorkerError, match=r"not ready 2 s after its launch.*loading.*setup_timeout"):
        bench.run(code, setup_timeout_s=2.0)
    assert not psutil.pid_exists(int((bench.spec.output_dir / "pid").read_text()))


def test_a_ready_worker_has_all_the_time_it_needs(bench: Bench) -> None:
    code = f"{beat(WorkerPhase.GENERATING, 0, 10.0)}\ntime.sleep(2.5)\n"
    assert bench.run(code + leave(WorkerOutcome.COMPLETED), setup_timeout_s=1.5).num_done == 5


def test_a_worker_that_stops_between_loading_and_its_next_heartbeat_is_hung(bench: Bench) -> None:
    loaded = "(folder / 'facts.json').write_text('{}')"
    with pytest.raises(WorkerLostError, match=r"replica 3 is hung: no step of its engine in 0\.3 s"):
        bench.run(f"{beat(WorkerPhase.LOADING, 0, 10.0)}\n{loaded}\ntime.sleep(60)", hang_timeout_s=0.3)


def test_progress_is_told_once_per_heartbeat(bench: Bench) -> None:
    beats = [(WorkerPhase.LOADING, 0, 1.0), (WorkerPhase.GENERATING, 0, 2.0), (WorkerPhase.GENERATING, 6, 5.0)]
    code = "\n".join(f"{beat(*each)}\ntime.sleep(0.5)" for each in beats)
    bench.run(f"{code}\n{leave(WorkerOutcome.COMPLETED)}")
    assert [(each.phase, each.num_done) for each in bench.progress] == [(phase, done) for phase, done, _ in beats]
    assert bench.progress[-1].samples_per_s == pytest.approx(2.0)
    assert bench.progress[-1].left_s == pytest.approx(1.5)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_whatever_ends_the_controller_ends_the_worker(bench: Bench, error: type[BaseException]) -> None:
    def fail(progress: ReplicaProgress) -> None:
        raise error

    bench.tell = fail  # type: ignore[method-assign]
    code = f"(folder / 'pid').write_text(str(os.getpid()))\n{beat(WorkerPhase.GENERATING, 0, 10.0)}\ntime.sleep(60)"
    began = time.monotonic()
    with pytest.raises(error):
        bench.run(code)
    assert not psutil.pid_exists(int((bench.spec.output_dir / "pid").read_text()))
    assert time.monotonic() - began < 30


def test_a_worker_is_ended_when_another_thread_says_so(bench: Bench) -> None:
    bench.stopping = threading.Event()
    threading.Timer(0.5, bench.stopping.set).start()
    began = time.monotonic()
    with pytest.raises(WorkerError, match="stopped because the run ended"):
        bench.run("(folder / 'pid').write_text(str(os.getpid()))\ntime.sleep(60)")
    assert time.monotonic() - began < 30
    pid_file = bench.spec.output_dir / "pid"
    assert not pid_file.exists() or not psutil.pid_exists(int(pid_file.read_text()))


def test_an_interpreter_that_is_absent_is_a_setup_error(bench: Bench) -> None:
    launch = ReplicaLaunch(
        engine_python=Path("/absent/python"),
        placement=Placement(num_gpus=0, num_cpus=1),
        log_path=bench.log_path,
        setup_timeout_s=1.0,
    )
    with pytest.raises(SetupError, match="/absent/python"):
        run_replica(bench.spec, bench.launcher, launch)


def test_the_tail_of_a_log_is_its_last_lines_and_readable_whatever_it_holds(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert "cannot be read" in log_tail(log)
    log.write_bytes(b"")
    assert "empty" in log_tail(log)
    log.write_bytes(b"".join(b"line %d \xff\n" % number for number in range(10_000)))
    lines = log_tail(log).split("\n")
    assert len(lines) == 15
    assert lines[-1].startswith("    line 9999")
    log.write_bytes(b"\rLoading 0%\rLoading 100%\r\nlast words")
    assert log_tail(log) == "    Loading 100%\n    last words"


def test_the_pace_counts_from_the_start_of_generation() -> None:
    meter = ProgressMeter(1, 1)
    spent_loading = Heartbeat(phase=WorkerPhase.LOADING, pid=1, time=0.0, num_work=100)
    start = Heartbeat(phase=WorkerPhase.GENERATING, pid=1, time=50.0, num_work=100)
    later = start.model_copy(update={"time": 60.0, "num_done": 40, "num_completion_tokens": 800})
    assert meter.read(spent_loading).samples_per_s is None
    assert meter.read(start).samples_per_s is None
    told = meter.read(later)
    assert (told.samples_per_s, told.tokens_per_s, told.left_s) == (4.0, 80.0, 15.0)


def test_exit_codes_are_distinct_and_clear_of_those_with_a_meaning() -> None:
    codes = list(EXIT_CODES.values())
    assert len(set(codes)) == len(codes)
    assert not {1, 2, 126, 127, *(128 + number for number in signal.valid_signals())} & set(codes)
    assert EXIT_CODES[WorkerOutcome.COMPLETED] == os.EX_OK


class ScriptedLauncher:
    """A scheduler that tells one status after the other, the last one for ever."""

    ends_with_controller = False

    def __init__(self, *statuses: JobStatus) -> None:
        self._statuses = list(statuses)
        self.submitted: list[LaunchSpec] = []
        self.is_cancelled = False

    def submit(self, specs: Sequence[LaunchSpec]) -> list[str]:
        self.submitted += specs
        return ["1_0"]

    def poll(self, job_id: str) -> JobStatus:
        return self._statuses[0]

    def wait(self, job_id: str, *, timeout_s: float) -> JobStatus:
        time.sleep(timeout_s)
        return self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]

    def cancel(self, job_id: str) -> JobStatus:
        self.is_cancelled = True
        return self._statuses[0]

    def end_earlier_jobs(self) -> int:
        return 0

    def close(self) -> None:
        return


def queued(reason: str) -> JobStatus:
    return JobStatus(state=JobState.PENDING, detail=reason)


def killed(cause: EndCause, detail: str) -> JobStatus:
    return JobStatus(state=JobState.KILLED, cause=cause, detail=detail)


def supervise(
    bench: Bench,
    launcher: ScriptedLauncher,
    *,
    setup_timeout_s: float = 60.0,
    max_queue_s: float | None = None,
    hang_timeout_s: float | None = None,
) -> WorkerResult:
    launch = ReplicaLaunch(
        engine_python=Path("/engine/python"),
        placement=Placement(num_gpus=1, num_cpus=1),
        log_path=bench.log_path,
        setup_timeout_s=setup_timeout_s,
        max_queue_s=max_queue_s,
        hang_timeout_s=hang_timeout_s,
        poll_interval_s=0.01,
    )
    return run_replica(bench.spec, launcher, launch, on_progress=bench.tell)


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


def test_a_worker_that_is_heard_is_not_in_the_queue_however_old_the_look_at_it(bench: Bench) -> None:
    heartbeat = Heartbeat(phase=WorkerPhase.GENERATING, pid=1, time=1.0, num_work=9)
    write_heartbeat(bench.spec.output_dir, heartbeat)
    launcher = ScriptedLauncher(*[queued("Priority")] * 20, killed(EndCause.INFRASTRUCTURE, "NODE_FAIL"))
    with pytest.raises(TransientError, match="NODE_FAIL"):
        supervise(bench, launcher, max_queue_s=0.05)
    assert [each.phase for each in bench.progress] == [WorkerPhase.GENERATING]


def test_a_job_that_stands_still_by_its_schedulers_will_is_not_hung(bench: Bench) -> None:
    heartbeat = Heartbeat(phase=WorkerPhase.GENERATING, pid=1, time=1.0, num_work=9)
    write_heartbeat(bench.spec.output_dir, heartbeat)
    suspended = JobStatus(state=JobState.RUNNING, is_suspended=True)
    launcher = ScriptedLauncher(*[suspended] * 30, killed(EndCause.INFRASTRUCTURE, "PREEMPTED"))
    with pytest.raises(TransientError, match="PREEMPTED"):
        supervise(bench, launcher, hang_timeout_s=0.1)


def test_time_in_the_queue_is_no_start_up_time_and_is_told_with_its_reason(bench: Bench) -> None:
    waiting = [queued("Priority")] * 20 + [queued("Resources")] * 20
    running = JobStatus(state=JobState.RUNNING)
    launcher = ScriptedLauncher(*waiting, running, killed(EndCause.INFRASTRUCTURE, "NODE_FAIL"))
    with pytest.raises(TransientError, match="NODE_FAIL"):
        supervise(bench, launcher, setup_timeout_s=0.1)
    assert [(each.phase, each.reason) for each in bench.progress] == [
        (WorkerPhase.QUEUED, "Priority"),
        (WorkerPhase.QUEUED, "Resources"),
        (WorkerPhase.STARTING, ""),
    ]
    assert bench.progress[0].as_line() == "replica 3 queued (Priority)"


def test_a_job_that_waits_too_long_is_cancelled(bench: Bench) -> None:
    launcher = ScriptedLauncher(queued("Resources"))
    with pytest.raises(WorkerError, match=r"queue \(Resources\).*max_queue_s"):
        supervise(bench, launcher, max_queue_s=0.1)
    assert launcher.is_cancelled


def test_a_worker_without_a_pipe_is_not_asked_to_watch_one(bench: Bench) -> None:
    launcher = ScriptedLauncher(killed(EndCause.USER, "CANCELLED"))
    with pytest.raises(WorkerError):
        supervise(bench, launcher)
    assert "--stop-on-stdin-eof" not in launcher.submitted[0].argv
