"""What every way of talking with Slurm offers, and what it tells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from schemas.slurm import SlurmJobState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One element of an array, as the queue shows it."""

    job_id: str
    """Array and element, such as `23_4`: the number that Slurm gives an element itself is not told before it starts.
    The array alone where its last element was cancelled before it started."""
    state: SlurmJobState
    """Where it stands."""
    reason: str
    """Why it waits or how it ended, in Slurm's words; `None` when there is nothing to say."""
    node: str
    """The node that it has or had; empty before it has one."""
    comment: str
    """As it was submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """How one step of a job ended."""

    state: SlurmJobState
    """State in which the step ended."""
    exit_code: int
    """Exit code of its process."""
    signal: int
    """Signal that ended it, 0 if none; Slurm uses numbers above 64 for reasons of its own (125: out of memory)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a job ended."""

    job: StepEnd
    """The job itself."""
    reason: str = ""
    """In Slurm's words."""
    node: str = ""
    """Where it ran."""
    steps: tuple[StepEnd, ...] = ()
    """Its steps, where the accounting tells of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One node as a member of one partition."""

    node: str
    """Name of the node."""
    partition: str
    """The partition's name."""
    is_default: bool
    """Whether jobs that name no partition go there."""
    partition_is_up: bool
    """Whether the partition takes jobs."""
    time_limit_s: int | None
    """Longest job of the partition; None without a limit."""
    num_cpus: int
    """Cores of the node."""
    num_gpus: int
    """GPUs of the node, of whatever type."""
    state: str
    """The node's state in Slurm's words, such as `idle` or `down*`."""


class SlurmClient(Protocol):
    """One way of talking with Slurm. A question that gets no answer raises: it never says that a job failed."""

    def submit(self, script: Path, options: Sequence[str], env: Mapping[str, str]) -> str:
        """Submit an array and return its number.

        `env` is the environment of the jobs.

        Raises:
            SetupError: Slurm refuses it.
            TransientError: Slurm did not answer; whether the job is in the queue has to be looked up.
        """
        ...

    def rehearse(self, script: str, *, all_nodes_there: bool) -> None:
        """Return if Slurm would take a job; submits nothing.

        What a node that is away could give counts as available unless `all_nodes_there`.

        Raises:
            SetupError: Slurm would refuse it.
            TransientError: Slurm did not answer.
        """
        ...

    def jobs(self, name: str) -> list[JobRecord]:
        """Return this user's jobs of that name which Slurm remembers, ended ones too.

        Raises:
            TransientError: Slurm did not answer.
        """
        ...

    def end_of(self, job_id: str) -> JobEnd | None:
        """Return how a job ended, without its steps; None when the controller does not remember, or it goes on.

        Raises:
            TransientError: Slurm did not answer.
        """
        ...

    def accounted_ends(self, job_ids: Sequence[str]) -> dict[str, JobEnd] | None:
        """Return by job how those ended that the accounting says are over, with their steps; it lags by seconds.

        None where there is no accounting, or none that answers.
        """
        ...

    def max_array_size(self) -> int:
        """Return how many elements an array may have, at least 1.

        Raises:
            TransientError: Slurm did not answer.
        """
        ...

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Ask for the end of jobs; those that are over or unknown are left alone.

        Raises:
            TransientError: Slurm did not answer.
        """
        ...

    def nodes(self) -> list[NodeRecord]:
        """Return every node once for each of its partitions.

        Raises:
            SetupError: Slurm's commands are not installed.
            TransientError: Slurm did not answer.
        """
        ...
