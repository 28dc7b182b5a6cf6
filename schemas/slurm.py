"""What Slurm is asked for (`scheduler.slurm`) and the states that it tells of jobs."""

import re
import shlex
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from schemas.base import Section

_TIME: Final = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
_TIME_RULE: Final = "minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, UNLIMITED"
_MEMORY: Final = re.compile(r"[1-9]\d*[KMGT]?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NODES: Final = re.compile(r"[A-Za-z0-9._-]+(?:\[[0-9,-]+\][A-Za-z0-9._-]*)*")
_OWN_OPTIONS: Final = frozenset(
    {
        "array", "clusters", "comment", "error", "export", "gid", "job-name", "no-requeue", "open-mode", "output",
        "parsable", "requeue", "test-only", "uid", "wait", "wrap",
    }
)  # fmt: skip
"""Options of sbatch that decide whether jobs are submitted and where, how they are found, watched and retried."""

ClientChoice = Literal["auto", "pyslurm", "cli"]


class SlurmJobState(StrEnum):
    """Every state that Slurm 22.05 to 25.11 tells of a job."""

    BOOT_FAIL = "BOOT_FAIL"
    """The job's node could not be booted."""
    CANCELLED = "CANCELLED"
    """Somebody cancelled it."""
    COMPLETED = "COMPLETED"
    """The job ended with exit code 0."""
    COMPLETING = "COMPLETING"
    """The job has ended and its node cleans up: its final state follows."""
    CONFIGURING = "CONFIGURING"
    """The job has nodes, which are made ready."""
    DEADLINE = "DEADLINE"
    """The job could not end before its deadline."""
    EXPEDITING = "EXPEDITING"
    """The job was requeued and is to start at once."""
    FAILED = "FAILED"
    """The job ended with another exit code or by a signal, or could not be launched."""
    LAUNCH_FAILED = "LAUNCH_FAILED"
    """The job's node could not start it."""
    NODE_FAIL = "NODE_FAIL"
    """The job's node failed."""
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    """The job took more memory than it had asked for."""
    PENDING = "PENDING"
    """The job waits for its turn."""
    POWER_UP_NODE = "POWER_UP_NODE"
    """The job's nodes are switched on."""
    PREEMPTED = "PREEMPTED"
    """A job of higher priority took its nodes."""
    RECONFIG_FAIL = "RECONFIG_FAIL"
    """The job's node could not be configured."""
    REQUEUED = "REQUEUED"
    """The job was put back into the queue."""
    REQUEUE_FED = "REQUEUE_FED"
    """The job was put back into the queue of the federation."""
    REQUEUE_HOLD = "REQUEUE_HOLD"
    """The job was put back into the queue and is held there."""
    RESIZING = "RESIZING"
    """The job is about to change its size."""
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    """The job is held because its reservation was deleted."""
    REVOKED = "REVOKED"
    """Another cluster of the federation runs it."""
    RUNNING = "RUNNING"
    """The job runs."""
    SIGNALING = "SIGNALING"
    """The job is being sent a signal."""
    SPECIAL_EXIT = "SPECIAL_EXIT"
    """The job was put back into the queue and is held there, by its own wish."""
    STAGE_OUT = "STAGE_OUT"
    """The job's files are being copied out."""
    STOPPED = "STOPPED"
    """The job was sent SIGSTOP and keeps its nodes."""
    SUSPENDED = "SUSPENDED"
    """The job was suspended and its nodes given to others."""
    TIMEOUT = "TIMEOUT"
    """The job reached its time limit."""
    UPDATE_DB = "UPDATE_DB"
    """The accounting database is told of it."""
    UNKNOWN = "UNKNOWN"
    """A word that this version of Milepost does not know; taken for running until another one follows."""

    @classmethod
    def parse(cls, word: str) -> "SlurmJobState":
        """Return the state that Slurm's commands print, such as `CANCELLED by 0` or `RUNNING`."""
        name = word.partition(" ")[0].rstrip("+")
        return cls(name) if name in cls.__members__ else cls.UNKNOWN

    @property
    def is_terminal(self) -> bool:
        """Whether the job is over; our jobs are never requeued by Slurm."""
        return self in _TERMINAL

    @property
    def is_waiting(self) -> bool:
        """Whether the job has not begun."""
        return self in _WAITING

    @property
    def is_suspended(self) -> bool:
        """Whether the job has begun and is kept from going on."""
        return self in (SlurmJobState.STOPPED, SlurmJobState.SUSPENDED)


_TERMINAL: Final = frozenset(
    {
        SlurmJobState.BOOT_FAIL,
        SlurmJobState.CANCELLED,
        SlurmJobState.COMPLETED,
        SlurmJobState.DEADLINE,
        SlurmJobState.FAILED,
        SlurmJobState.LAUNCH_FAILED,
        SlurmJobState.NODE_FAIL,
        SlurmJobState.OUT_OF_MEMORY,
        SlurmJobState.PREEMPTED,
        SlurmJobState.RECONFIG_FAIL,
        SlurmJobState.REVOKED,
        SlurmJobState.TIMEOUT,
    }
)
_WAITING: Final = frozenset(
    {
        SlurmJobState.CONFIGURING,
        SlurmJobState.EXPEDITING,
        SlurmJobState.PENDING,
        SlurmJobState.POWER_UP_NODE,
        SlurmJobState.REQUEUED,
        SlurmJobState.REQUEUE_FED,
        SlurmJobState.REQUEUE_HOLD,
        SlurmJobState.RESV_DEL_HOLD,
        SlurmJobState.SPECIAL_EXIT,
    }
)


def parse_time_limit(text: str) -> int | None:
    """Return the seconds of a time limit as Slurm writes it; None for no limit, which 0 asks for too.

    Raises:
        ValueError: it is none, with the forms that are.
    """
    if text.lower() in ("infinite", "unlimited"):
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"allowed: {_TIME_RULE}")
    first, second, third = (int(match[name] or 0) for name in ("first", "second", "third"))
    if match["days"] is not None:
        seconds = ((int(match["days"]) * 24 + first) * 60 + second) * 60 + third
    elif match["third"] is not None:
        seconds = (first * 60 + second) * 60 + third
    else:
        seconds = first * 60 + second
    return seconds or None


def _one_line(text: str) -> str:
    if not text.strip() or any(ord(letter) < ord(" ") or letter == "\x7f" for letter in text):
        raise ValueError("allowed: one line of text without control characters; a directive of sbatch holds no other")
    return text


def _time_limit(text: str) -> str:
    parse_time_limit(text)
    return text


def _memory(text: str) -> str:
    if not _MEMORY.fullmatch(text):
        raise ValueError("allowed: a whole number of MiB, or with K, M, G or T, such as 64G")
    return text


def _variables(value: object) -> object:
    """Whole numbers as text; a file's and an override's scalars arrive as they are written."""
    if not isinstance(value, dict):
        return value
    variables: dict[object, object] = value
    if wrong := [(name, number) for name, number in variables.items() if isinstance(number, float | bool)]:
        name, number = wrong[0]
        raise ValueError(f"{name} is {number!r} and no text, which may have lost how it was written; quote it")
    if missing := [name for name, text in variables.items() if text is None]:
        raise ValueError(f'{missing[0]} has no value; write "" for the empty text, or quote null')
    return {str(name): str(text) if isinstance(text, int) else text for name, text in variables.items()}


def _variable_names(value: dict[str, str]) -> dict[str, str]:
    if wrong := [name for name in value if not _VARIABLE.fullmatch(name)]:
        raise ValueError(f"{wrong[0]!r} is no name of a variable: letters, digits and _, no digit first")
    if wrong := [name for name, text in value.items() if "\0" in text]:
        raise ValueError(f"{wrong[0]} holds a NUL character")
    return value


def _lines(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _options(value: tuple[str, ...]) -> tuple[str, ...]:
    for line in value:
        name = re.split(r"[= ]", line, maxsplit=1)[0]
        if not name.startswith("--"):
            raise ValueError(f"{line!r} is no long option of sbatch, such as --exclusive or --mail-type=FAIL")
        if name == "--exclude":
            raise ValueError(
                "name the nodes in scheduler.slurm.exclude_nodes: sbatch would take only the last --exclude"
            )
        if any(own.startswith(name[2:]) for own in _OWN_OPTIONS):  # sbatch takes the beginning of a name for it
            raise ValueError(f"{name} is set by Milepost, which finds and watches its jobs by it; remove it")
    return value


def _node_names(value: tuple[str, ...]) -> tuple[str, ...]:
    if wrong := [name for name in value if not _NODES.fullmatch(name)]:
        raise ValueError(f"{wrong[0]!r} names no node; allowed: names such as node7 or node[7-9,12]")
    return value


def _command_words(text: str) -> str:
    try:
        shlex.split(text)
    except ValueError as exc:
        raise ValueError(f"it cannot be split into words ({exc}); quote as in a shell") from exc
    return text


Line = Annotated[str, AfterValidator(_one_line)]


class SlurmConfig(Section):
    """What each replica's job asks Slurm for. What is null is left to the cluster's own defaults."""

    partition: Line | None = None
    """Partition. None: the cluster's default one."""
    account: Line | None = None
    """Account that is charged."""
    qos: Line | None = None
    """Quality of service."""
    time: Annotated[Line, AfterValidator(_time_limit)] | None = Field(
        default=None, json_schema_extra={"allowed": _TIME_RULE}
    )
    """Time limit of a replica; 0 and UNLIMITED ask for none. None: the partition's default. A run that needs longer
    goes on with the same command."""
    constraint: Line | None = None
    """Features that a node must have, such as `a100|h100`."""
    reservation: Line | None = None
    """Reservation to run in."""
    cpus_per_replica: int | None = Field(default=None, ge=1, le=4096)
    """Cores of a replica. None: of its node's cores the same share as of its GPUs, at least one."""
    memory: Annotated[Line, AfterValidator(_memory)] | None = None
    """Memory of a replica, such as 64G. None: the cluster's default, which some clusters set low."""
    extra: Annotated[tuple[Line, ...], BeforeValidator(_lines), AfterValidator(_options)] = ()
    """More options of sbatch, one per entry, such as --mail-type=FAIL. They stand in the script as they are written."""
    exclude_nodes: Annotated[tuple[Line, ...], BeforeValidator(_lines), AfterValidator(_node_names)] = ()
    """Nodes that no replica starts on, one per entry, such as node7 or node[7-9]."""
    env: Annotated[dict[str, str], BeforeValidator(_variables), AfterValidator(_variable_names)] = Field(
        default_factory=dict[str, str]
    )
    """Environment of the replicas, added to that of the command. No place for secrets: the configuration is kept with
    the run. What the command's own environment holds reaches the replicas too, and is written nowhere."""
    container: Annotated[Line, AfterValidator(_command_words)] | None = None
    """Command that runs a program inside a container, such as `apptainer exec --nv --bind /data /images/vllm.sif` or
    `srun --container-image=/images/vllm.sqsh`; the worker's command is appended. engine.python is a path inside it."""
    max_queue_s: float | None = Field(default=None, gt=0)
    """Longest wait in the queue in seconds; a replica that waited longer is cancelled and the run fails. None: no
    limit. Time in the queue does not count for rollout.setup_timeout."""
    poll_interval_s: float = Field(default=5.0, ge=0.1, le=300)
    """Seconds between looks at the queue: one squeue for all replicas of a run. 5 keeps a shared controller at ease."""
    client: ClientChoice = "auto"
    """Interface to Slurm. `cli`: by its commands, which match the cluster by themselves. `pyslurm`: the queue is
    looked at by pyslurm, which has to be installed beside Milepost in the cluster's own release. `auto`: by pyslurm
    where that is so. `milepost doctor` says which and why."""
