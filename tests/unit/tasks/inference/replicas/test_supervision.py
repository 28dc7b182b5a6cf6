"""A worker is watched: in the queue, while it starts, while it generates, until it is over or not heard in time."""

import threading
import time
from pathlib import Path

import psutil
import pytest

from infra.jobs.base import EndCause, JobState, JobStatus, Placement
from schemas.errors import (
    SetupError,
    TransientError,
    WorkerError,
    WorkerLostError,
)
from schemas.inference import Heartbeat
from schemas.progress import ReplicaProgress
from schemas.states import WorkerOutcome, WorkerPhase
from tasks.inference.exchange.worker_files import read_spec, write_heartbeat
from tasks.inference.replicas.progress import ProgressMeter
from tasks.inference.replicas.supervision import ReplicaLaunch, run_replica
from tests.support.replica_bench import Bench, ScriptedLauncher, beat, killed, leave, queued, supervise


def test_a_completed_worker_gives_its_result(bench: Bench) -> None:
    assert bench.run(leave(WorkerOutcome.COMPLETED)).num_done == 5


def test_the_worker_is_asked_for_with_a_spec_that_reads_back(bench: Bench) -> None:
    code = "(folder / 'argv').write_text(json.dumps([sys.argv[1:], os.environ['PYTHONPATH']]))\n"
    bench.run(code + leave(WorkerOutcome.COMPLETED))
    argv = (bench.spec.output_dir / "argv").read_text()
    assert '"-P", "-m", "tasks.inference.worker"' in argv
    assert '"--stop-on-stdin-eof"' in argv
    assert read_spec(bench.spec.output_dir / "spec.json") == bench.spec


def test_a_worker_that_is_not_ready_in_time_is_ended(bench: Bench) -> None:
    write_heartbeat(bench.spec.output_dir, Heartbeat(phase=WorkerPhase.LOADING, pid=1, time=1.0, num_work=9))
    launcher = ScriptedLauncher(JobStatus(state=JobState.RUNNING))
    with pytest.raises(WorkerError, match=r"not ready 0\.1 s after its launch.*loading.*setup_timeout"):
        supervise(bench, launcher, setup_timeout_s=0.1)
    assert launcher.is_cancelled


def test_a_ready_worker_has_all_the_time_it_needs(bench: Bench) -> None:
    write_heartbeat(bench.spec.output_dir, Heartbeat(phase=WorkerPhase.GENERATING, pid=1, time=1.0, num_work=9))
    running = [JobStatus(state=JobState.RUNNING)] * 30
    launcher = ScriptedLauncher(*running, killed(EndCause.INFRASTRUCTURE, "NODE_FAIL"))
    with pytest.raises(TransientError, match="NODE_FAIL"):
        supervise(bench, launcher, setup_timeout_s=0.1)


def test_a_worker_that_stops_between_loading_and_its_next_heartbeat_is_hung(bench: Bench) -> None:
    loaded = "(folder / 'facts.json').write_text('{}')"
    with pytest.raises(WorkerLostError, match=r"replica 3 is hung: no step of its engine in 0\.3 s"):
        bench.run(f"{beat(WorkerPhase.LOADING, 0, 10.0)}\n{loaded}\ntime.sleep(60)", hang_timeout_s=0.3)


def test_progress_is_told_once_per_heartbeat(bench: Bench) -> None:
    beats = [(WorkerPhase.LOADING, 0, 1.0), (WorkerPhase.GENERATING, 0, 2.0), (WorkerPhase.GENERATING, 6, 5.0)]
    told = bench.spec.output_dir / "told"

    def tell(progress: ReplicaProgress) -> None:
        bench.progress.append(progress)
        told.write_text("x" * len(bench.progress))

    bench.tell = tell  # type: ignore[method-assign]
    heard = "while not (folder / 'told').exists() or (folder / 'told').stat().st_size < {}: time.sleep(0.01)"
    # and once more the same beat is there to be looked at
    code = "\n".join(f"{beat(*each)}\n{heard.format(number)}\ntime.sleep(0.2)" for number, each in enumerate(beats, 1))
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


def test_the_pace_counts_from_the_start_of_generation() -> None:
    meter = ProgressMeter(1, 1)
    spent_loading = Heartbeat(phase=WorkerPhase.LOADING, pid=1, time=0.0, num_work=100)
    start = Heartbeat(phase=WorkerPhase.GENERATING, pid=1, time=50.0, num_work=100)
    later = start.model_copy(update={"time": 60.0, "num_done": 40, "num_completion_tokens": 800})
    assert meter.read(spent_loading).samples_per_s is None
    assert meter.read(start).samples_per_s is None
    told = meter.read(later)
    assert (told.samples_per_s, told.tokens_per_s, told.left_s) == (4.0, 80.0, 15.0)


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
    waiting = [queued("Priority")] * 100 + [queued("Resources")] * 100
    running = JobStatus(state=JobState.RUNNING)
    launcher = ScriptedLauncher(*waiting, running, killed(EndCause.INFRASTRUCTURE, "NODE_FAIL"))
    with pytest.raises(TransientError, match="NODE_FAIL"):
        supervise(bench, launcher, setup_timeout_s=1.5)
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
