"""The controller's side of one replica: launch its worker, watch it, say how it ended.

Whatever happens here, an exception or an interruption included, the worker does not stay behind.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.engines.base import LostChild, find_lost_child, hides_shortage
from infra.files.atomic import make_folder
from infra.files.log_files import end_or_nothing, log_tail
from infra.jobs.base import EndCause, JobState, JobStatus, Launcher, LaunchSpec, Placement
from infra.jobs.environment import job_environment
from infra.launchers.waiting import waiting_processes
from infra.machine.engine_environment import find_checkout, make_import_root
from schemas.errors import (
    EngineError,
    EngineOutOfMemoryError,
    MilepostError,
    SetupError,
    TransientError,
    WorkerError,
    WorkerLostError,
)
from schemas.inference import EngineImport, Heartbeat, WorkerResult, WorkerSpec
from schemas.progress import ReplicaProgress
from schemas.states import WorkerOutcome, WorkerPhase
from tasks.inference.exchange.worker_files import EXIT_CODES, WAIT, has_loaded, read_heartbeat, read_result, write_spec
from tasks.inference.replicas.progress import ProgressMeter
from tasks.inference.replicas.work_board import WorkBoard

_LOG_END_BYTES: Final = 262_144
"""Enough for the stack traces of an engine's processes, one after the other."""
_MORE_MEMORY: Final = ", or raise scheduler.slurm.memory"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLaunch:
    """Where and how a worker is launched; none of it decides a sample."""

    engine_python: Path
    """Interpreter of the engine environment."""
    placement: Placement
    """Devices and cores."""
    log_path: Path
    """The worker's stdout and stderr."""
    exclude_nodes: tuple[str, ...] = ()
    """Machines not to start it on."""
    setup_timeout_s: float
    """Longest time from the start of its process to the first request."""
    max_queue_s: float | None = None
    """Longest time in a scheduler's queue before that; None without a limit."""
    hang_timeout_s: float | None = None
    """Longest time without a step of an engine that generates; None without a limit."""
    start: int = 1
    """How many times its replica has been started by this command, this launch included."""
    board: WorkBoard | None = None
    """Where work moves between the replicas; None where each keeps its own."""
    poll_interval_s: float = 0.2
    """Time between looks at the worker's files."""
    stopping: threading.Event | None = None
    """Ends the worker once another thread sets it."""


class WorkYielded(Exception):  # noqa: N818 - no error: a replica in the queue gives its work to those that run
    """A replica's job was taken from the queue; what it was given is to be made by others."""


def run_replica(
    spec: WorkerSpec,
    launcher: Launcher,
    launch: ReplicaLaunch,
    *,
    on_progress: Callable[[ReplicaProgress], None] | None = None,
    job_id: str | None = None,
) -> WorkerResult:
    """Run a worker to its end and return its result, outcome `completed`.

    `on_progress` is called in this thread for every new heartbeat, and for every new reason to wait in a queue.
    `job_id` is that of a job which was submitted already.

    Raises:
        EngineOutOfMemoryError: the engine ran out of memory.
        EngineError: the engine or the worker failed otherwise.
        TransientError: the scheduler ended it for its time limit, for another job or because a node failed, or somebody
            else than this command told it to stop.
        WorkerLostError: the worker died or is hung.
        WorkerError: the worker was cancelled or told to stop, or was not ready in time.
        WorkYielded: its job waited in the queue and is taken from it; `launch.board` has to hand its work out.
        StoreError: its folder cannot be written.
        SetupError: it cannot be started.
    """
    if job_id is None:
        (job_id,) = launcher.submit([launch_spec(spec, launcher, launch)])
    try:
        status = _Watch(spec, launch, on_progress).follow(launcher, job_id)
    except BaseException:
        try:
            launcher.cancel(job_id)
        except MilepostError as exc:  # what happened first is what its user needs to know
            logger.warning("%s", exc)
        raise
    return _conclude(spec, status, launch)


def launch_spec(spec: WorkerSpec, launcher: Launcher, launch: ReplicaLaunch) -> LaunchSpec:
    """Write what the worker is told and return how it is started.

    Raises:
        StoreError: its folder cannot be written.
    """
    arguments = (str(write_spec(spec)), *(("--stop-on-stdin-eof",) if launcher.ends_with_controller else ()))
    make_folder(launch.log_path.parent)
    engine = EngineImport(engine=spec.engine.engine, num_threads=spec.num_threads, strict=spec.engine.strict)
    return LaunchSpec(
        key=f"{spec.run_id}/attempt-{spec.attempt}/replica-{spec.replica}",
        argv=(*_program(launch.engine_python), *arguments),
        waiting_argv=(*_program(launch.engine_python), WAIT, engine.model_dump_json()),
        arguments=arguments,
        cwd=spec.output_dir,
        log_path=launch.log_path,
        placement=launch.placement,
        exclude_nodes=launch.exclude_nodes,
        env=_environment(make_import_root(spec.output_dir)),
    )


def start_waiting_worker(engine_python: Path, placement: Placement, engine: EngineImport) -> None:
    """Start a worker of this machine that imports its engine before there is a spec; a launch of the same adopts it.

    Only from a checkout: in an installation the links that a worker imports by lie beside its spec.
    """
    root = find_checkout()
    if root is not None:
        argv = (*_program(engine_python), WAIT, engine.model_dump_json())
        waiting_processes.start(argv, job_environment(_environment(root), placement), placement)


def _program(engine_python: Path) -> tuple[str, ...]:
    # -P: neither the current folder nor the script's is searched for modules
    return (str(engine_python), "-P", "-m", "tasks.inference.worker")


def _environment(import_root: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(import_root), "PYTHONUNBUFFERED": "1"}


class _Watch:
    """Looks at one worker until it is over; tells each new heartbeat."""

    def __init__(
        self, spec: WorkerSpec, launch: ReplicaLaunch, on_progress: Callable[[ReplicaProgress], None] | None
    ) -> None:
        self._spec = spec
        self._launch = launch
        self._tell: Callable[[ReplicaProgress], None] = on_progress or (lambda _: None)
        self._meter = ProgressMeter(spec.replica, launch.start)
        self._beat: Heartbeat | None = None
        self._waits_for: str | None = None
        self._submitted = self._started = self._moved = time.monotonic()

    def follow(self, launcher: Launcher, job_id: str) -> JobStatus:
        """Return the terminal state of the job.

        Raises:
            WorkYielded: it waits in the queue, and its work is wanted elsewhere.
            WorkerLostError: its engine stands still.
            WorkerError: it was not ready or not started in time, or the run ended.
        """
        while True:
            status = launcher.wait(job_id, timeout_s=self._launch.poll_interval_s)
            self._read_heartbeat()
            # a worker that was heard runs, however old the last look at the queue is
            if self._beat is None and status.state is JobState.PENDING:
                self._wait_in_queue(status)
            elif self._waits_for is not None:
                self._leave_queue()
            stopping = self._launch.stopping
            if stopping is not None and stopping.is_set() and not status.state.is_terminal:
                raise WorkerError(
                    f"replica {self._spec.replica} was stopped because the run ended; the same command goes on"
                )
            if status.state.is_terminal:
                return status
            if status.is_suspended:
                self._started = self._moved = time.monotonic()
            self._check_headway()

    def _wait_in_queue(self, status: JobStatus) -> None:
        self._started = self._moved = time.monotonic()  # time in the queue is no start-up time
        _check_queue(self._spec, self._launch, status, self._started - self._submitted)
        if status.detail != self._waits_for:
            self._waits_for = status.detail
            self._tell(self._meter.wait_in_queue(self._waits_for))
        board = self._launch.board
        if board is not None and board.note_queued(self._spec.replica):
            raise WorkYielded

    def _leave_queue(self) -> None:
        self._waits_for = None
        if self._beat is None:
            self._tell(self._meter.start())

    def _read_heartbeat(self) -> None:
        beat, before = read_heartbeat(self._spec.output_dir), self._beat
        # a clock that was set back is no reason to take a worker for hung
        if beat is None or (before is not None and beat.time == before.time):
            return
        # an idle worker makes no steps, and is well
        if before is None or beat.num_steps != before.num_steps or beat.phase is not WorkerPhase.GENERATING:
            self._moved = time.monotonic()
        self._beat = beat
        self._tell(self._meter.read(beat))
        if self._launch.board is not None:
            self._launch.board.note(self._spec.replica, beat)

    def _check_headway(self) -> None:
        beat, launch, now = self._beat, self._launch, time.monotonic()
        # a worker that stops between loading and its next heartbeat would pass for one that loads
        is_ready = (beat is not None and beat.phase not in (WorkerPhase.STARTING, WorkerPhase.LOADING)) or has_loaded(
            self._spec.output_dir
        )
        if not is_ready and now - self._started > launch.setup_timeout_s:
            doing = "nothing yet" if beat is None else beat.phase.value
            raise WorkerError(
                f"replica {self._spec.replica} was not ready {launch.setup_timeout_s:g} s after its launch (it was "
                f"{doing}); raise rollout.setup_timeout or see {launch.log_path}:\n{log_tail(launch.log_path)}"
            )
        if is_ready and launch.hang_timeout_s is not None and now - self._moved > launch.hang_timeout_s:
            raise WorkerLostError(
                f"replica {self._spec.replica} is hung: no step of its engine in {launch.hang_timeout_s:g} s "
                f"(rollout.hang_timeout); see {launch.log_path}"
            )


def _check_queue(spec: WorkerSpec, launch: ReplicaLaunch, status: JobStatus, waited_s: float) -> None:
    if launch.max_queue_s is not None and waited_s > launch.max_queue_s:
        raise WorkerError(
            f"replica {spec.replica} waited {waited_s:.0f} s in the queue ({status.detail}), the limit being "
            f"{launch.max_queue_s:g}: raise scheduler.slurm.max_queue_s, or ask for less; the same command goes on"
        )


def _conclude(spec: WorkerSpec, status: JobStatus, launch: ReplicaLaunch) -> WorkerResult:
    """Return the result of a worker that completed; raise what the end of any other one means."""
    result = read_result(spec.output_dir)
    outcome = _outcome(status, result, launch.log_path)
    message = "" if result is None else result.message
    who, log = f"replica {spec.replica}", f"see {launch.log_path}"
    if outcome is WorkerOutcome.COMPLETED and result is not None:
        return result
    if status.cause is EndCause.REFUSED:
        raise SetupError(f"{who} will never be started: {status.detail}; change what scheduler.slurm asks for")
    if outcome is WorkerOutcome.OUT_OF_MEMORY:
        raise EngineOutOfMemoryError(f"{_describe_shortage(spec, status)}; {log}. {message or status.detail}")
    # a scheduler that ends a job may end the engine's processes before the worker
    log_end = end_or_nothing(launch.log_path, _LOG_END_BYTES)
    lost = find_lost_child(message, log_end) if outcome is WorkerOutcome.FAILED else None
    is_cut_off = status.cause in (EndCause.TIME_LIMIT, EndCause.INFRASTRUCTURE)
    if outcome is WorkerOutcome.FAILED and result is not None and lost is None and not is_cut_off:
        raise EngineError(f"{who} failed: {message}; {log}")
    if is_cut_off:
        advice = "raise scheduler.slurm.time or " if status.cause is EndCause.TIME_LIMIT else ""
        raise TransientError(
            f"{who} was ended by the scheduler: {status.detail}; {advice}run the same command to go on"
        )
    if status.cause is EndCause.USER:
        raise WorkerError(f"{who} was cancelled ({status.detail or message}); run the same command to go on; {log}")
    if outcome is WorkerOutcome.CANCELLED:
        raise TransientError(f"{who} was cancelled ({message or 'no reason left'}), not by this command; {log}")
    raise _loss(spec, status, launch, lost)


def _loss(spec: WorkerSpec, status: JobStatus, launch: ReplicaLaunch, lost: LostChild | None) -> MilepostError:
    """Return what it means that a worker left no word why it ended, or that its engine lost a process."""
    if lost is None:
        end = _describe_end(status.signal, status.exit_code, status.detail)
        number, what = status.signal, f"{end} without a result"
    else:
        code = lost.exit_code
        number = -code if code is not None and code < 0 else None
        what = f"lost a process of its engine, which {_describe_end(number, code, 'its exit code is not known')}"
    may_be_memory = number == signal.SIGKILL
    advice = f"; if memory was short, {_advise(spec, status)}" if may_be_memory else ""
    message = f"replica {spec.replica} {what}{advice}; see {launch.log_path}:\n{log_tail(launch.log_path)}"
    if number is not None or lost == LostChild(None):
        return WorkerLostError(message, may_be_memory=may_be_memory)
    return WorkerError(message) if lost is None else EngineError(message)


def _describe_shortage(spec: WorkerSpec, status: JobStatus) -> str:
    """Say at which settings memory was short, and what to lower."""
    ratio = "default" if spec.engine.memory_ratio is None else f"{spec.engine.memory_ratio:g}"
    return (
        f"replica {spec.replica} ran out of memory at batch size {spec.engine.batch_size}, max_new_tokens "
        f"{spec.sampling.max_new_tokens}, memory_ratio {ratio}: {_advise(spec, status)}"
    )


def _advise(spec: WorkerSpec, status: JobStatus) -> str:
    """Say what to lower where memory is short: at one sequence, the batch is not it."""
    if spec.engine.batch_size > 1:
        what = "rollout.max_concurrent_rollouts or gconfig.max_new_tokens"
    else:
        what = "gconfig.max_new_tokens or the context length (vllm.max_model_len), or give a replica more GPUs (t, p)"
    return f"lower {what}{_MORE_MEMORY if status.detail else ''}"


def _outcome(status: JobStatus, result: WorkerResult | None, log_path: Path) -> WorkerOutcome:
    """Return how a worker ended: in its own words, unless its scheduler or its engine's processes know better."""
    if result is not None and result.outcome is WorkerOutcome.COMPLETED:
        return result.outcome
    if status.cause is EndCause.OUT_OF_MEMORY:
        return WorkerOutcome.OUT_OF_MEMORY
    if result is not None:
        log_end = end_or_nothing(log_path, _LOG_END_BYTES)
        is_hidden = result.outcome is WorkerOutcome.FAILED and hides_shortage(result.message, log_end)
        return WorkerOutcome.OUT_OF_MEMORY if is_hidden else result.outcome
    if status.state is JobState.KILLED:
        return WorkerOutcome.KILLED
    return next((outcome for outcome, code in EXIT_CODES.items() if code == status.exit_code), WorkerOutcome.FAILED)


def _describe_end(number: int | None, exit_code: int | None, detail: str) -> str:
    if number is None:
        return f"ended ({detail})" if exit_code is None else f"ended with exit code {exit_code}"
    name = signal.Signals(number).name
    hint = " (the kernel does that when the machine's memory is used up)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"
