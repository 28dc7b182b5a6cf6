"""What every launcher offers: start a process somewhere, watch it, stop it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class JobState(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    """Accepted, not running yet."""
    RUNNING = "running"
    """The process of the job runs."""
    SUCCEEDED = "succeeded"
    """Its process ended with exit code 0."""
    FAILED = "failed"
    """The process of the job ended with another exit code."""
    KILLED = "killed"
    """A signal ended its process."""

    @property
    def is_terminal(self) -> bool:
        """Whether the job is over."""
        return self not in (JobState.PENDING, JobState.RUNNING)


class EndCause(StrEnum):
    """Who ended a job."""

    PROCESS = "process"
    """Its process: by an exit code or a signal of its own."""
    OUT_OF_MEMORY = "out_of_memory"
    """The scheduler, as the job took more memory than it had asked for."""
    TIME_LIMIT = "time_limit"
    """The scheduler, as its time was up."""
    INFRASTRUCTURE = "infrastructure"
    """A node that failed, or a job of higher priority."""
    USER = "user"
    """Somebody who cancelled it."""
    REFUSED = "refused"
    """The scheduler, which took it and will never start it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One look at a job."""

    state: JobState
    """Where it stands."""
    exit_code: int | None = None
    """Of a process that ended by itself."""
    signal: int | None = None
    """Number of the signal that ended it."""
    is_suspended: bool = False
    """Whether the scheduler has stopped it for a while, as for a job of higher priority."""
    cause: EndCause = EndCause.PROCESS
    """Who ended it; says nothing of a job that is not over."""
    detail: str = ""
    """What the scheduler says: why it waits, how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The share of a machine that one job gets."""

    num_gpus: int
    """GPUs of the job."""
    num_cpus: int
    """CPU cores of the job."""
    gpu_ids: tuple[str, ...] = ()
    """Names for CUDA_VISIBLE_DEVICES; empty where a scheduler assigns them."""
    cpu_ids: tuple[int, ...] = ()
    """Cores to pin the job to; empty where it may use any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """What to start. Nothing in it is ever read by a shell."""

    key: str
    """Name for people, such as `run/replica-000`; any text."""
    argv: tuple[str, ...]
    """Program and arguments, passed on as they are."""
    cwd: Path
    """Folder that the process starts in; exists."""
    log_path: Path
    """Where stdout and stderr are appended; its folder exists."""
    placement: Placement
    """Devices and cores."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the launcher's own clean environment."""
    exclude_nodes: tuple[str, ...] = ()
    """Nodes not to start it on, as the scheduler names them; nothing to a launcher of one machine."""
    waiting_argv: tuple[str, ...] = ()
    """How the program is started ahead of its launch, to wait for `arguments`; empty where it cannot be."""
    arguments: tuple[str, ...] = ()
    """What it is told then: with them it does what `argv` says."""


class Launcher(Protocol):
    """Starts and watches jobs. Methods may be called from several threads, one per job."""

    ends_with_controller: bool
    """Whether a job's stdin ends when this process does. Else a job has to watch the run's owner for itself."""

    def submit(self, specs: Sequence[LaunchSpec]) -> list[str]:
        """Start jobs and return their ids; all of them or none.

        Raises:
            SetupError: one cannot be started at all (no such program, folder or partition).
            TransientError: the scheduler does not answer.
        """
        ...

    def poll(self, job_id: str) -> JobStatus:
        """Return where the job stands; a terminal state stays."""
        ...

    def wait(self, job_id: str, *, timeout_s: float) -> JobStatus:
        """Return once the job is over or the time is up."""
        ...

    def cancel(self, job_id: str) -> JobStatus:
        """End the job with everything it started: politely, then by force. Does nothing to one that is over."""
        ...

    def end_earlier_jobs(self) -> int:
        """End what a controller that died left of the same run; return the number of jobs that was.

        Raises:
            TransientError: they do not end, or the scheduler does not answer.
        """
        ...

    def close(self) -> None:
        """End the jobs that are not over. The launcher cannot be used any more."""
        ...
