"""One thread that looks at the queue for all jobs of a launcher.

A look that fails leaves every job where it was last seen: no answer is never taken for a failure.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from infra.launchers.base import EndCause, JobState, JobStatus
from infra.slurm.classification import classify_end
from infra.slurm.client import JobEnd, JobRecord, SlurmClient, StepEnd
from schemas.errors import MilepostError

_HURRY_S: Final = 0.5
"""Slurm needs that long to end a job that obeys."""
_CANCELLED_AFTER_S: Final = 3.0
"""An element that is cancelled before it starts leaves no record at all."""
_LOST_AFTER_S: Final = 60.0
"""A job that Slurm does not know for so long, while it answers, is gone: its records may have been removed."""
_WORDS_BYTES: Final = 4096
_NEVER_STARTS: Final = frozenset(
    {
        "AccountNotAllowed",
        "BadConstraints",
        "DependencyNeverSatisfied",
        "InvalidAccount",
        "InvalidQOS",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSNotAllowed",
        "ReservationDeleted",
    }
)
"""Reasons to wait that do not pass by themselves."""

logger = logging.getLogger(__name__)


class QueueWatch:
    """Looks at the queue once per interval, for all jobs, while one of them is not over."""

    def __init__(self, client: SlurmClient, name: str, interval_s: float, folder: Path) -> None:
        """`name`: that of the jobs; `folder`: where Slurm's own words about them go."""
        self._client = client
        self._name = name
        self._interval_s = interval_s
        self._folder = folder
        self._changed = threading.Condition()  # its lock may be taken again by the thread that holds it
        self._wake = threading.Event()
        self._is_stopped = False
        self._statuses: dict[str, JobStatus] = {}
        self._logs: dict[str, Path] = {}
        self._missed_since: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def add(self, jobs: Sequence[str], logs: Sequence[Path] = ()) -> None:
        """Watch these jobs too; `logs` are what they write themselves."""
        with self._changed:
            self._logs.update(zip(jobs, logs, strict=False))
            for job in jobs:
                self._statuses[job] = JobStatus(state=JobState.PENDING, detail="submitted")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="slurm-watch", daemon=True)
                self._thread.start()

    def status(self, job: str) -> JobStatus:
        """Return where the job was last seen."""
        with self._changed:
            return self._statuses[job]

    def unfinished(self) -> list[str]:
        """Return the jobs that were not over when last seen."""
        with self._changed:
            return [job for job, status in self._statuses.items() if not status.state.is_terminal]

    def wait(self, job: str, *, timeout_s: float) -> JobStatus:
        """Return once the job is over or the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self._statuses[job].state.is_terminal, timeout_s)
            return self._statuses[job]

    def hurry(self) -> None:
        """Look again at once."""
        self._wake.set()

    def stop(self) -> None:
        """Look no more."""
        self._is_stopped = True
        self._wake.set()

    def _run(self) -> None:
        is_silent = False
        while self._has_work():
            try:
                self._look()
                is_silent = False
            except (MilepostError, OSError) as exc:
                if not is_silent:
                    logger.warning("the queue cannot be seen, jobs are taken to be as they were: %s", exc)
                is_silent = True
            hurried = self._wake.wait(self._interval_s)
            self._wake.clear()
            if hurried:
                time.sleep(_HURRY_S)

    def _has_work(self) -> bool:
        """Whether to look on; else whoever adds a job starts another thread."""
        with self._changed:
            has_work = not self._is_stopped and bool(self.unfinished())
            if not has_work:
                self._thread = None
            return has_work

    def _look(self) -> None:
        records = {record.job_id: record for record in self._client.jobs(self._name)}
        now = time.monotonic()
        for job in self.unfinished():
            record = records.get(job) or records.get(job.partition("_")[0])
            if record is None:
                self._missed_since.setdefault(job, now)
            else:
                self._missed_since.pop(job, None)
            status = self._status(job, record, now - self._missed_since.get(job, now))
            with self._changed:
                self._statuses[job] = status
                self._changed.notify_all()

    def _status(self, job: str, record: JobRecord | None, unseen_s: float) -> JobStatus:
        if record is not None and not record.state.is_terminal:
            if record.state.is_waiting and record.reason in _NEVER_STARTS:
                self._client.cancel([job])
                return JobStatus(state=JobState.KILLED, cause=EndCause.REFUSED, detail=record.reason)
            state = JobState.PENDING if record.state.is_waiting else JobState.RUNNING
            return JobStatus(state=state, detail="" if record.reason == "None" else record.reason, node=record.node)
        end = self._client.end_of(job)
        if end is None and record is not None:
            step = StepEnd(state=record.state, exit_code=0, signal=0)
            end = JobEnd(job=step, reason=record.reason, node=record.node)
        if end is not None:
            return classify_end(end, self._words(job))
        before = self.status(job)
        if before.state is JobState.PENDING and unseen_s > _CANCELLED_AFTER_S:
            return JobStatus(state=JobState.KILLED, cause=EndCause.USER, detail="cancelled while it waited")
        if unseen_s > _LOST_AFTER_S:
            detail = f"Slurm does not know job {job} any more"
            return replace(before, state=JobState.KILLED, cause=EndCause.INFRASTRUCTURE, detail=detail)
        return before

    def _words(self, job: str) -> str:
        """Return the last of what Slurm wrote of a job, and of what the job wrote: srun speaks there."""
        files = [self._folder / f"slurm-{job}.out", *filter(None, [self._logs.get(job)])]
        return "\n".join(_tail(file) for file in files)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _WORDS_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
