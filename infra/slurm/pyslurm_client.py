"""`SlurmClient` that looks at the queue by pyslurm: one message to the controller instead of a process per look."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from infra.jobs.environment import clean_environment
from infra.slurm.answering_process import AnsweringProcess
from infra.slurm.cli import CliClient, cluster_environment
from infra.slurm.client import JobEnd, JobRecord, NodeRecord
from schemas.base import Model
from schemas.errors import SetupError, TransientError
from schemas.slurm import SlurmJobState

_SERVER: Final = Path(__file__).with_name("pyslurm_server.py")
_TIMEOUT_S: Final = 30.0
"""pyslurm waits about 10 s for a controller that does not answer."""
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)")


class _Job(Model):
    """One record of pyslurm: an element of an array, or all those that wait."""

    id: int
    name: str
    user_id: int
    array_id: int | None
    array_task_id: int | None
    array_tasks_waiting: str | None
    state: str
    state_reason: str | None
    allocated_nodes: str | None
    comment: str | None


class _Answer(Model):
    """What the server says."""

    error: str | None = None
    release: str | None = None
    lacks: tuple[str, ...] = ()
    jobs: tuple[_Job, ...] = ()


class PyslurmClient:
    """pyslurm shows the queue, which is asked for again and again; Slurm's commands do what pyslurm cannot do right.

    They submit, as pyslurm reads no quotes in directives and knows only some options. They cancel, as an element that
    waits has no number of its own. They tell how a job ended, as pyslurm takes 128 from an exit code (137 becomes 9)
    and shows no steps without slurmdbd. They list the nodes, once per run.
    """

    def __init__(self, commands: CliClient) -> None:
        """`commands` does the rest. pyslurm is not looked for yet."""
        self._commands = commands
        env = clean_environment(os.environ) | cluster_environment()
        self._server = AnsweringProcess([sys.executable, "-I", os.fspath(_SERVER)], env)

    def check(self) -> str:
        """Return the release of pyslurm, if it can be used with this cluster.

        Raises:
            SetupError: it cannot; says why and what to do.
            TransientError: its process died or did not answer.
        """
        wanted = self._commands.release()
        answer = self._ask(ask="release")
        install = f"install the release of pyslurm that was made for Slurm {wanted} into {sys.executable}"
        if answer.release is None:
            raise SetupError(f"pyslurm cannot be imported ({answer.error}); {install}")
        if _major_minor(answer.release) != _major_minor(wanted):
            raise SetupError(f"pyslurm {answer.release} does not speak with Slurm {wanted}; {install}")
        if answer.lacks:
            raise SetupError(f"pyslurm {answer.release} does not tell {', '.join(answer.lacks)} of a job; {install}")
        return answer.release

    def submit(self, script: Path, options: Sequence[str], env: Mapping[str, str]) -> str:
        """Submit by sbatch."""
        return self._commands.submit(script, options, env)

    def rehearse(self, script: str, *, all_nodes_there: bool) -> None:
        """Return if sbatch would take a job."""
        self._commands.rehearse(script, all_nodes_there=all_nodes_there)

    def jobs(self, name: str) -> list[JobRecord]:
        """Return this user's jobs of that name, ended ones too, by pyslurm."""
        answer = self._ask(ask="jobs", name=name)
        if answer.error is not None:
            raise TransientError(f"pyslurm: {answer.error}")
        return [
            JobRecord(
                job_id=job_id,
                state=SlurmJobState.parse(job.state),
                reason=job.state_reason or "None",
                node=job.allocated_nodes or "",
                comment=job.comment or "",
            )
            for job in answer.jobs
            for job_id in _job_ids(job)
        ]

    def end_of(self, job_id: str) -> JobEnd | None:
        """Return how a job ended by scontrol."""
        return self._commands.end_of(job_id)

    def accounted_ends(self, job_ids: Sequence[str]) -> dict[str, JobEnd] | None:
        """Return how jobs ended by sacct."""
        return self._commands.accounted_ends(job_ids)

    def max_array_size(self) -> int:
        """Return how many elements an array may have, by scontrol."""
        return self._commands.max_array_size()

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Ask for the end of jobs by scancel."""
        self._commands.cancel(job_ids)

    def nodes(self) -> list[NodeRecord]:
        """Return every node once for each of its partitions, by sinfo."""
        return self._commands.nodes()

    def close(self) -> None:
        """End pyslurm's process; that happens by itself too where nobody holds this client any more."""
        self._server.close()

    def _ask(self, **question: str) -> _Answer:
        line = self._server.ask(json.dumps(question), timeout_s=_TIMEOUT_S)
        try:
            return _Answer.model_validate_json(line)
        except ValidationError as exc:
            raise TransientError(f"pyslurm tells of jobs in a way that is not known: {exc}") from exc


def _job_ids(job: _Job) -> list[str]:
    """Return the ids of the elements that a record stands for.

    pyslurm says None both for element 0 and for no element: a record under the array's own number that never had a node
    is what is left of an array whose last element was cancelled while it waited.
    """
    if job.array_id is None:
        return [str(job.id)]
    if job.array_tasks_waiting is not None:
        return [f"{job.array_id}_{element}" for element in expand_elements(job.array_tasks_waiting)]
    if job.array_task_id is None and job.id == job.array_id and not job.allocated_nodes:
        return [str(job.id)]
    return [f"{job.array_id}_{job.array_task_id or 0}"]


def expand_elements(text: str) -> Iterator[int]:
    """Yield the elements of an array as Slurm writes them, such as `0,3-5` or `0-8:2`."""
    for first, last, step in _RANGE.findall(text):
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def _major_minor(release: str) -> tuple[int, int]:
    """Return the part of a release that decides whether two speak the same: `22.05.8` and `22.5.3` do."""
    match = _RELEASE.search(release)
    return (int(match[1]), int(match[2])) if match else (0, 0)
