"""The closed vocabularies of runs, replicas and samples."""

from enum import StrEnum


class Verdict(StrEnum):
    """What grading says of one sample. Only `correct` and `wrong`-like outcomes carry a score."""

    CORRECT = "correct"
    """The answer equals the gold."""
    WRONG = "wrong"
    """An answer was found, understood, and differs from the gold."""
    NO_ANSWER = "no_answer"
    """The completion ended by itself without stating an answer."""
    UNPARSED = "unparsed"
    """An answer was found that the grader cannot read."""
    TRUNCATED = "truncated"
    """The completion was cut (by length, or inside an open <think>) before it stated an answer."""
    TIMEOUT = "timeout"
    """Grading took longer than `grading.timeout_s`: an infrastructure failure, no score."""
    CRASHED = "crashed"
    """The grading process died on this sample: an infrastructure failure, no score."""
    FAILED = "failed"
    """No completion was made: the item was refused or its generation failed. No score."""

    @property
    def is_scored(self) -> bool:
        """Whether the sample counts in `num_scored`; the others count in `num_failed`."""
        return self not in (Verdict.TIMEOUT, Verdict.CRASHED, Verdict.FAILED)


class FinishReason(StrEnum):
    """Why the engine ended a completion."""

    STOP = "stop"
    """An end-of-sequence token or a stop string."""
    LENGTH = "length"
    """`max_new_tokens` or the context length was reached."""


class RunStatus(StrEnum):
    """The life of a run, as kept in run.json."""

    RUNNING = "running"
    """Owned by a controller, or left behind by one that was killed: the same command resumes it."""
    COMPLETED = "completed"
    """Published in the store."""
    FAILED = "failed"
    """Ended by an error; the same command resumes it."""

    @property
    def is_resumable(self) -> bool:
        """Whether the same command continues this run instead of starting a new one."""
        return self is not RunStatus.COMPLETED


class WorkerPhase(StrEnum):
    """What a worker is doing, as its heartbeat says; before its first one, what its scheduler says."""

    QUEUED = "queued"
    """The replica's job waits in the scheduler's queue."""
    STARTING = "starting"
    """The process runs and imports its engine."""
    LOADING = "loading"
    """The engine loads the weights."""
    GENERATING = "generating"
    """Samples are being made."""
    IDLE = "idle"
    """The samples are made; the worker waits for some of another replica's."""
    FINISHED = "finished"
    """The result file is written."""


class WorkerOutcome(StrEnum):
    """How a worker ended, as its result file or its exit code says."""

    COMPLETED = "completed"
    """Every sample of its work is journalled."""
    OUT_OF_MEMORY = "out_of_memory"
    """The engine ran out of memory: a smaller batch may do."""
    FAILED = "failed"
    """The engine or the workflow raised: a bug or a wrong setting, not retried."""
    KILLED = "killed"
    """The process ended by a signal and left no result."""
    CANCELLED = "cancelled"
    """Asked to stop by its controller, or its controller vanished."""
