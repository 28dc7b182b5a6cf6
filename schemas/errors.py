"""Every error that Milepost raises on purpose: one class per decision that a caller makes.

    MilepostError                       exit 1: the run failed
    ├── UserInputError                  exit 2: stop and tell the user, nothing was launched
    │   ├── ConfigError                 a key or value of the configuration
    │   │   └── LaunchError             what nobody can start where it would run, whatever the checkpoint
    │   ├── CheckpointError             a checkpoint that cannot be evaluated
    │   │   └── ChatTemplateError       its template takes no conversation of text
    │   ├── DatasetError                a dataset that cannot be graded
    │   │   └── RefusedRowsError        rows of it, each with its reason
    │   ├── StoreError                  a store that cannot be read or written
    │   └── SetupError                  something this machine lacks (engine, memory, devices)
    ├── TransientError                  try again
    ├── EngineOutOfMemoryError          shrink the batch
    ├── EngineError                     the engine refused or died for another reason: surface it
    ├── ScoringError                    too little has a score: grade it again, publish nothing
    ├── WorkerError                     a replica ended before its work was done
    │   └── WorkerLostError             it died or hung: give its work to a fresh one
    └── DistributedEvaluationError      what the replicas made does not add up: publish nothing
        ├── ReplicasDisagreeError       replicas that should agree do not, as an event has said: tell nobody twice
        └── MergeError                  a planned sample is missing or was made from another prompt

A message names the value seen, the values allowed and the next step. Foreign exceptions are translated once, in the
adapter that met them, with `from exc`.
"""

from collections.abc import Sequence

from schemas.secrets import hide_secrets


class MilepostError(Exception):
    """The root: anything that Milepost reports to a user without a traceback."""

    exit_code = 1

    def __str__(self) -> str:
        """Return the message without the credentials that were put in a wrong place."""
        return hide_secrets(super().__str__())


class UserInputError(MilepostError):
    """The user's input is wrong; nothing was launched."""

    exit_code = 2


class ConfigError(UserInputError):
    """A key or value of the configuration is not acceptable."""


class LaunchError(ConfigError):
    """The configuration asks for more than this version, the cluster or the GPU budget has, whatever the checkpoint."""


class CheckpointError(UserInputError):
    """The checkpoint folder cannot be evaluated as it is."""


class ChatTemplateError(CheckpointError):
    """The chat template fails on a conversation of text, or leaves out what is asked."""


class DatasetError(UserInputError):
    """The dataset cannot be read or cannot be graded."""


class RefusedRowsError(DatasetError):
    """Rows of a dataset cannot be used; the message shows the first few."""

    def __init__(self, message: str, rows: Sequence[tuple[int, str]] = ()) -> None:
        """`rows`: number and reason of every one of them."""
        super().__init__(message)
        self.rows = tuple(rows)


class StoreError(UserInputError):
    """The store cannot be read or written."""


class SetupError(UserInputError):
    """This machine lacks something that the evaluation needs."""


class TransientError(MilepostError):
    """A passing failure of the outside world: the caller may try again."""


class EngineOutOfMemoryError(MilepostError):
    """The engine ran out of memory: the caller may try a smaller batch."""


class EngineError(MilepostError):
    """The engine refused the work or died for a reason other than memory."""


class ScoringError(MilepostError):
    """Too few samples have a score for a metric, for a reason that grading them again may remove."""


class WorkerError(MilepostError):
    """A replica ended before its work was done."""


class WorkerLostError(WorkerError):
    """A worker died or hung and left no word why; a fresh one may take its work up."""

    def __init__(self, message: str, *, may_be_memory: bool = False) -> None:
        """`may_be_memory`: it ended as the kernel ends a process when memory is used up."""
        super().__init__(message)
        self.may_be_memory = may_be_memory


class DistributedEvaluationError(MilepostError):
    """What the replicas made does not add up; no metric is published."""


class ReplicasDisagreeError(DistributedEvaluationError):
    """Replicas that should agree do not; an event of its own has said so."""


class MergeError(DistributedEvaluationError):
    """A planned sample is missing, or a sample was made from a prompt that was not planned."""
