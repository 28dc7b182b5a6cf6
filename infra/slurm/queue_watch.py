"""One thread that looks at the queue for all jobs of a launcher, and asks for the end of those that are not wanted.

A look that fails leaves every job where it was last seen: no answer is never taken for a failure. What could not be
asked for is asked for again at the next look.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from infra.jobs.base import EndCause, JobState, JobStatus
from infra.slurm.client import JobRecord, SlurmClient
from infra.slurm.endings import EndReader
from schemas.errors import MilepostError, SetupError
from schemas.slurm import SlurmJobState

_HURRY_S: Final = 0.5
"""Slurm needs that long to end a job that obeys; and what many threads want ended at once is one request."""
_CANCELLED_AFTER_S: Final = 3.0
"""An element that is cancelled before it starts leaves no record at all."""
_LOST_AFTER_S: Final = 60.0
"""A job that Slurm does not know for so long, while it answers, is gone: its records may have been removed. Slurm that
cannot be used for so long, as its commands are gone, say, is not used any more."""
_END_S: Final = 60.0
"""KillWait is 30 s by default, a node's clean-up takes as long again."""
_UNHEARD_S: Final = 30.0
"""Time for two commands that wait in vain for a controller; the end that it was asked for may come later."""
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
        self._ends = EndReader(client, folder)
        self._changed = threading.Condition()  # its lock may be taken again by the thread that holds it
        self._wake = threading.Event()
        self._is_stopped = False
        self._num_ending = 0
        self._statuses: dict[str, JobStatus] = {}
        self._missed_since: dict[str, float] = {}
        self._unwanted_since: dict[str, float] = {}
        self._unheard: set[str] = set()
        self._kept_arrays: dict[str, str | None] = {}
        self._is_blind = False
        self._unusable_since: float | None = None
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def add(self, jobs: Sequence[str], logs: Mapping[str, Path] | None = None) -> None:
        """Watch these jobs too; `logs` are what they write themselves."""
        with self._changed:
            self._ends.note_logs(logs or {})
            for job in jobs:
                self._statuses[job] = JobStatus(state=JobState.PENDING, detail="submitted")
            self._start()

    def status(self, job: str) -> JobStatus:
        """Return where the job was last seen."""
        with self._changed:
            return self._statuses[job]

    def unfinished(self) -> list[str]:
        """Return the jobs that were not over when last seen."""
        with self._changed:
            return [job for job, status in self._statuses.items() if not status.state.is_terminal]

    def wait(self, job: str, *, timeout_s: float) -> JobStatus:
        """Return once the job is over or the time is up.

        Raises:
            SetupError: Slurm cannot be asked any more.
            Exception: what went wrong at the last look, where that is a bug.
        """

        def is_over() -> bool:
            return self._statuses[job].state.is_terminal

        with self._changed:
            self._changed.wait_for(lambda: is_over() or self._failure is not None, timeout_s)
            if self._failure is not None and not is_over():
                raise self._failure
            return self._statuses[job]

    def end(self, jobs: Sequence[str]) -> list[str]:
        """Cancel jobs, wait for their end for a minute from the first call on, and return those that are not over.

        What Slurm does not hear is waited for half as long; the watch goes on to ask for it. A stopped one looks on
        meanwhile.
        """
        with self._changed:
            for job in jobs:
                if job not in self._unwanted_since:
                    self._unwanted_since[job] = time.monotonic()
                    self._unheard.add(job)
            self._num_ending += 1
            self._start()
            self._wake.set()
            try:
                while left := [job for job in jobs if not self._statuses[job].state.is_terminal]:
                    rest_s = max(self._patience_ends(job) for job in left) - time.monotonic()
                    if rest_s <= 0:
                        break
                    self._changed.wait(rest_s)
            finally:
                self._num_ending -= 1
            return left

    def unheard(self) -> list[str]:
        """Return the jobs that are not wanted and whose end Slurm could not be asked for yet."""
        with self._changed:
            return [job for job in self.unfinished() if job in self._unheard]

    def keep_only(self, array: str | None, comment: str) -> None:
        """End whatever was submitted with that comment but for one array, whenever it comes to light."""
        with self._changed:
            self._kept_arrays[comment] = array

    def stop(self) -> None:
        """Look no more, but once for what was submitted twice, where that may have been."""
        self._is_stopped = True
        self._wake.set()
        if self._kept_arrays:
            try:
                problems = self._end_copies(self._client.jobs(self._name))
            except MilepostError as exc:
                problems = [exc]
            for problem in problems:
                logger.warning(
                    "jobs that were submitted twice may be left: %s; see `squeue --name=%s`", problem, self._name
                )

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="slurm-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._has_work():
            try:
                self._look()
                self._note(None)
            except Exception as exc:  # noqa: BLE001 - else every wait would last for ever; they raise it
                self._note(exc)
            hurried = self._wake.wait(self._interval_s)
            self._wake.clear()
            if hurried:
                time.sleep(_HURRY_S)

    def _has_work(self) -> bool:
        """Whether to look on; else whoever adds a job starts another thread."""
        with self._changed:
            # a job that was submitted while the watch was stopped is ended all the same
            is_wanted = self._num_ending or not self._is_stopped
            has_work = bool(is_wanted and self.unfinished())
            if not has_work:
                self._thread = None
            return has_work

    def _note(self, problem: Exception | None) -> None:
        """Remember what went wrong at a look; what may pass by itself is said once."""
        with self._changed:
            if not isinstance(problem, SetupError):
                self._unusable_since = None
            elif self._unusable_since is None:
                self._unusable_since = time.monotonic()
            if problem is None:
                self._is_blind, self._failure = False, None
                return
            if not self._is_blind:
                logger.warning("the queue cannot be seen, jobs are taken to be as they were: %s", problem)
            self._is_blind = True
            self._missed_since.clear()
            lasts = self._unusable_since is not None and time.monotonic() - self._unusable_since >= _LOST_AFTER_S
            self._failure = None if isinstance(problem, MilepostError | OSError) and not lasts else problem
            self._changed.notify_all()

    def _look(self) -> None:
        problems = self._ask_for_ends()
        records = {record.job_id: record for record in self._client.jobs(self._name)}
        now, live, gone = time.monotonic(), dict[str, JobRecord](), dict[str, JobRecord | None]()
        for job in self.unfinished():
            record = records.get(job) or records.get(job.partition("_")[0])
            if record is None or record.state.is_terminal:
                gone[job] = record
            else:
                live[job] = record
        reading = self._ends.read(gone, now=now)
        statuses = {job: _live_status(record) for job, record in live.items()} | reading.statuses
        for job in statuses:
            self._missed_since.pop(job, None)
        statuses |= {job: self._unknown_status(job, now) for job in reading.unknown}
        problems += reading.problems
        if not_taken := self._cancel([job for job, status in statuses.items() if status.cause is EndCause.REFUSED]):
            statuses = {job: status for job, status in statuses.items() if status.cause is not EndCause.REFUSED}
        with self._changed:
            self._statuses |= statuses
            # whatever the answer was, it was not heard
            self._unheard |= {job for job in live if job in self._unwanted_since and not _is_ending(live[job].state)}
            self._changed.notify_all()
        problems += [*not_taken, *self._end_copies(records.values())]
        if problems:  # a bug before what may pass
            raise min(problems, key=lambda problem: isinstance(problem, MilepostError))

    def _ask_for_ends(self) -> list[Exception]:
        jobs = self.unheard()
        problems = self._cancel(jobs)
        if jobs and not problems:
            with self._changed:
                self._unheard.difference_update(jobs)
                self._changed.notify_all()
            self._wake.set()  # to see their end
        return problems

    def _end_copies(self, records: Iterable[JobRecord]) -> list[Exception]:
        """End what was submitted a second time as the first answer was lost; return why that cannot be asked for."""
        with self._changed:
            kept = dict(self._kept_arrays)
        copies = [
            record.job_id
            for record in records
            if record.comment in kept
            and record.job_id.partition("_")[0] != kept[record.comment]
            and not _is_ending(record.state)
        ]
        if copies:
            logger.warning("cancelling what was submitted twice: %s", ", ".join(copies))
        return self._cancel(copies)

    def _cancel(self, jobs: Sequence[str]) -> list[Exception]:
        """Ask for the end of jobs; return why that cannot be asked for."""
        try:
            if jobs:
                self._client.cancel(jobs)
        except MilepostError as exc:
            return [exc]
        return []

    def _unknown_status(self, job: str, now: float) -> JobStatus:
        before, unseen_s = self.status(job), now - self._missed_since.setdefault(job, now)
        if job in self._unwanted_since and job not in self._unheard and unseen_s > _CANCELLED_AFTER_S:
            return JobStatus(state=JobState.KILLED, cause=EndCause.USER, detail="cancelled while it waited")
        if unseen_s > _LOST_AFTER_S:
            detail = f"Slurm does not know job {job} any more"
            return replace(before, state=JobState.KILLED, cause=EndCause.INFRASTRUCTURE, detail=detail)
        return before

    def _patience_ends(self, job: str) -> float:
        return self._unwanted_since[job] + (_UNHEARD_S if job in self._unheard else _END_S)


def _is_ending(state: SlurmJobState) -> bool:
    return state.is_terminal or state is SlurmJobState.COMPLETING


def _live_status(record: JobRecord) -> JobStatus:
    if record.state.is_waiting and record.reason in _NEVER_STARTS:
        return JobStatus(state=JobState.KILLED, cause=EndCause.REFUSED, detail=record.reason)
    return JobStatus(
        state=JobState.PENDING if record.state.is_waiting else JobState.RUNNING,
        is_suspended=record.state.is_suspended,
        detail="" if record.reason == "None" else record.reason,
    )
