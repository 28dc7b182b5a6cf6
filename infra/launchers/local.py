"""Processes on this machine, each in a session of its own, none outliving this process unnoticed.

A job's stdin is a pipe whose other end this process holds: when this process dies, however it dies, the job reads the
end of its input and can end itself.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from infra.jobs.base import JobState, JobStatus, LaunchSpec
from infra.jobs.environment import job_environment
from infra.launchers.waiting import pin, waiting_processes
from schemas.errors import SetupError

_GRACE_S: Final = 10.0
"""Seconds between SIGTERM and SIGKILL: a worker needs one to sync its journal."""
_POLL_S: Final = 0.05


class LocalLauncher:
    """`infra.jobs.base.Launcher` by processes of this machine."""

    ends_with_controller = True

    def __init__(self, *, grace_s: float = _GRACE_S) -> None:
        """`grace_s`: seconds that a cancelled job has between SIGTERM and SIGKILL."""
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._jobs: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, specs: Sequence[LaunchSpec]) -> list[str]:
        """Start jobs and return their ids; all of them or none.

        Raises:
            SetupError: one cannot be started.
        """
        jobs: list[str] = []
        try:
            for spec in specs:
                jobs.append(self._start(spec))  # noqa: PERF401 - those before a failure must be known
        except SetupError:
            for job in jobs:
                self.cancel(job)
            raise
        finally:
            waiting_processes.end()
        return jobs

    def _start(self, spec: LaunchSpec) -> str:
        env = job_environment(spec.env, spec.placement)
        process = waiting_processes.adopt(spec, env) or _spawn(spec, env)
        job_id = str(process.pid)
        with self._lock:
            while job_id in self._jobs:  # the kernel may reuse the number of a job that is over
                job_id += "+"
            self._jobs[job_id] = process
        return job_id

    def poll(self, job_id: str) -> JobStatus:
        """Return where the job stands; what it left behind in its session ends with it."""
        with self._lock:
            process = self._jobs[job_id]
            if process.returncode is None and self._has_ended(process):
                # before its number is given back: until then no other process can have it
                _signal_group(process, signal.SIGKILL)
                process.wait()
                if process.stdin is not None:
                    process.stdin.close()
        return _status(process.returncode)

    def wait(self, job_id: str, *, timeout_s: float) -> JobStatus:
        """Return once the job is over or the time is up."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            process = self._jobs[job_id]
        while True:
            status, left_s = self.poll(job_id), deadline - time.monotonic()
            if status.state.is_terminal or left_s <= 0:
                return status
            _wait_for_end(process.pid, left_s)

    def cancel(self, job_id: str) -> JobStatus:
        """End the job and everything in its session: SIGTERM, a time of grace, SIGKILL."""
        for number, patience_s in ((signal.SIGTERM, self._grace_s), (signal.SIGKILL, self._grace_s)):
            if self.poll(job_id).state.is_terminal:
                break
            with self._lock:
                process = self._jobs[job_id]
                if process.returncode is None:  # else another thread saw its end and its number is free again
                    _signal_group(process, number)
            self.wait(job_id, timeout_s=patience_s)
        return self.poll(job_id)

    def end_earlier_jobs(self) -> int:
        """Return 0: the jobs of a controller that died end by themselves."""
        return 0

    def close(self) -> None:
        """End the jobs that are not over."""
        waiting_processes.end()
        with self._lock:
            jobs = list(self._jobs)
        for job in jobs:
            self.cancel(job)

    @staticmethod
    def _has_ended(process: subprocess.Popen[bytes]) -> bool:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _spawn(spec: LaunchSpec, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        with spec.log_path.open("ab") as log:
            process = subprocess.Popen(
                spec.argv,
                cwd=spec.cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except (OSError, ValueError) as exc:
        raise SetupError(f"{spec.key}: cannot start {spec.argv[0]!r} in {spec.cwd}: {exc}") from exc
    pin(process.pid, spec.placement)
    return process


def _wait_for_end(pid: int, timeout_s: float) -> None:
    """Return once the process has ended or the time is up; sooner where the kernel does not offer to tell.

    To look again and again would take CPU time from an engine that computes on the same cores.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return  # another thread saw its end
    except OSError:  # a kernel or container without pidfd
        time.sleep(min(timeout_s, _POLL_S))
        return
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(timeout_s * 1000)
    finally:
        os.close(descriptor)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _status(returncode: int | None) -> JobStatus:
    if returncode is None:
        return JobStatus(state=JobState.RUNNING)
    if returncode < 0:
        return JobStatus(state=JobState.KILLED, signal=-returncode)
    return JobStatus(state=JobState.FAILED if returncode else JobState.SUCCEEDED, exit_code=returncode)
