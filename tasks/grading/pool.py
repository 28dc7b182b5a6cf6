"""Grading processes as the grader sees them: started when first needed, restarted when lost, ended with the pool."""

import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from threading import Lock
from types import TracebackType
from typing import IO, Final, Self

from infra.machine.python_code import child_environment
from tasks.grading.jobs import WALL_PER_CPU, Job, Reply, decode_reply, encode

_MAX_IN_FLIGHT: Final = 96
"""Jobs sent and not yet answered. Their replies (under 400 bytes each) fit a 64 KiB pipe, so neither side ever blocks
on writing while the other does."""
_START_ALLOWANCE_S: Final = 120.0
"""Longest silence beyond the timeout of one job: imports from a cold disk."""
_GRACE_S: Final = 1.0
_MAX_RESTARTS: Final = 3
_MAX_DEFAULT_PROCESSES: Final = 8


def default_num_processes() -> int:
    """Return the number of cores that this process may use, at most 8."""
    return min(_MAX_DEFAULT_PROCESSES, len(os.sched_getaffinity(0)))


def process_environment() -> dict[str, str]:
    """Return the environment of a process that grades: one thread."""
    return child_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


class GradingPool:
    """Runs jobs in processes that can be killed. Threads may share one; their calls take turns."""

    def __init__(self, *, num_processes: int | None = None, timeout_s: float = 10.0) -> None:
        self._num_processes = num_processes or default_num_processes()
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._last_words = ""
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_started(self) -> bool:
        """Whether the processes run."""
        return self._process is not None

    def close(self) -> None:
        """End the processes. A later `run` starts them anew."""
        with self._lock:
            self._stop()

    def start(self) -> None:
        """Start the processes now, in the background, so that the imports overlap other work."""
        with self._lock:
            if self._process is None:
                self._process = self._launch()

    def run(self, jobs: Sequence[Job]) -> list[Reply]:
        """Return one reply per job, in order. A job that hangs or kills its process costs no other job its reply."""
        replies: list[Reply | None] = [None] * len(jobs)
        with self._lock:
            for _ in range(1 + _MAX_RESTARTS):
                if self._run_once(jobs, replies):
                    break
                self._stop()
            reason = f"the grading supervisor ended {1 + _MAX_RESTARTS} times: {self._last_words}"
        return [Reply("crashed", reason=reason) if reply is None else reply for reply in replies]

    def _launch(self) -> "subprocess.Popen[bytes]":
        arguments = ["--num-processes", str(self._num_processes), "--timeout-s", str(self._timeout_s)]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the processes
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "tasks.grading.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=process_environment(),
            bufsize=0,
        )

    def _run_once(self, jobs: Sequence[Job], replies: list[Reply | None]) -> bool:
        """Fill in replies until all are there (True) or the supervisor is lost (False)."""
        to_send = [number for number, reply in enumerate(replies) if reply is None]
        if not to_send:
            return True
        if self._process is None:
            self._process = self._launch()
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            return False
        to_send.reverse()
        num_in_flight, buffer = 0, b""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while to_send or num_in_flight:
                batch = [to_send.pop() for _ in range(min(len(to_send), _MAX_IN_FLIGHT - num_in_flight))]
                num_in_flight += len(batch)
                try:
                    self._write(stdin.fileno(), b"".join(encode(number, jobs[number]) for number in batch))
                except BrokenPipeError:
                    return False
                if not selector.select(WALL_PER_CPU * self._timeout_s + _START_ALLOWANCE_S):
                    return False
                data = os.read(stdout.fileno(), 1 << 16)
                if not data:
                    return False
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    number, reply = decode_reply(line)
                    replies[number] = reply
                num_in_flight -= len(lines)
        return True

    @staticmethod
    def _write(descriptor: int, data: bytes) -> None:
        while data:
            data = data[os.write(descriptor, data) :]

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        try:
            process.wait(timeout=_GRACE_S)  # at the end of its input it ends its children, then itself
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._stderr is not None:
            self._last_words = _read_last_line(self._stderr)
            self._stderr.close()


def _read_last_line(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 2000))
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it left no message"
