"""How jobs ended that the queue shows as over, or shows no more.

A question without an answer says nothing: the job it was about is asked for again at the next look, with those that
would have been asked for after it.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from infra.files.log_files import end_or_nothing
from infra.jobs.base import EndCause, JobStatus
from infra.slurm.classification import classify_end
from infra.slurm.client import JobEnd, JobRecord, SlurmClient, StepEnd
from schemas.errors import TransientError
from schemas.slurm import SlurmJobState

_STEPS_S: Final = 4.0
"""The accounting tells of a job's steps so long after its end at most."""
_WORDS_BYTES: Final = 4096


class Reading(NamedTuple):
    """What could be found out of some jobs."""

    statuses: dict[str, JobStatus]
    """How they ended; without those that may be told more of at the next look."""
    unknown: list[str]
    """Those that neither the controller nor the accounting knows."""
    problems: list[Exception]
    """Why nothing could be found out of others."""


class EndReader:
    """Asks the controller of each job that is over, and the accounting, where there is one, of those left in doubt."""

    def __init__(self, client: SlurmClient, folder: Path) -> None:
        """`folder`: where Slurm's own words about jobs go."""
        self._client = client
        self._folder = folder
        self._logs: dict[str, Path] = {}
        self._failed_since: dict[str, float] = {}

    def note_logs(self, logs: Mapping[str, Path]) -> None:
        """Remember by job what it writes itself: srun speaks there."""
        self._logs.update(logs)

    def read(self, gone: Mapping[str, JobRecord | None], *, now: float) -> Reading:
        """Return how jobs ended.

        Args:
            gone: what the queue shows of each, a terminal state or nothing.
            now: seconds of a clock that does not jump.
        """
        reading = Reading({}, [], [])
        ends: dict[str, JobEnd] = {}
        for job, record in gone.items():
            try:
                end = self._end(job, record)
                if end is None:
                    reading.unknown.append(job)
                else:
                    ends[job] = end
                    reading.statuses[job] = classify_end(end, self._words(job))
            except TransientError as exc:  # each question that nobody answers takes seconds
                reading.problems.append(exc)
                break
            except Exception as exc:  # noqa: BLE001 - one job must not keep the others from being seen
                reading.problems.append(exc)
        doubtful = [job for job, status in reading.statuses.items() if _may_hide_a_shortage(ends[job], status)]
        if asked := [*reading.unknown, *doubtful]:
            self._consult_accounting(asked, ends, reading, now)
        return reading

    def _consult_accounting(self, jobs: list[str], ends: dict[str, JobEnd], reading: Reading, now: float) -> None:
        accounted = self._client.accounted_ends(jobs)
        if accounted is None:
            return
        for job in jobs:
            if (known := accounted.get(job)) is not None:
                end = replace(ends[job], steps=known.steps) if job in ends else known
                reading.statuses[job] = classify_end(end, self._words(job))
            elif job in ends and now - self._failed_since.setdefault(job, now) < _STEPS_S:
                del reading.statuses[job]
        reading.unknown[:] = [job for job in reading.unknown if job not in accounted]

    def _end(self, job: str, record: JobRecord | None) -> JobEnd | None:
        end = self._client.end_of(job)
        if end is None and record is not None:
            step = StepEnd(state=record.state, exit_code=0, signal=0)
            return JobEnd(job=step, reason=record.reason, node=record.node)
        return end

    def _words(self, job: str) -> str:
        """Return the last of what Slurm wrote of a job, and of what the job wrote."""
        files = [self._folder / f"slurm-{job}.out", *filter(None, [self._logs.get(job)])]
        return "\n".join(end_or_nothing(file, _WORDS_BYTES) for file in files)


def _may_hide_a_shortage(end: JobEnd, status: JobStatus) -> bool:
    """Whether a step of a job may have been out of memory though nothing else says so."""
    return end.job.state is SlurmJobState.FAILED and status.cause is EndCause.PROCESS
