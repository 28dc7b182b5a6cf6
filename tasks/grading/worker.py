"""The grading process: reads jobs from stdin, answers on stdout, and survives whatever a job does.

One supervisor imports math-verify once and forks the processes that compute; it is single-threaded, so forking is
safe, and a killed child is replaced in milliseconds instead of the seconds of an import. The supervisor itself never
computes: it hands out jobs, watches the clock, kills what hangs and says which job it was. A child that dies or hangs
costs exactly the job it was working on; those queued behind it go to another child.
"""

import argparse
import gc
import os
import selectors
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from typing import Final

from infra.machine.processes import end_with_parent
from infra.machine.python_code import claim_stdout
from tasks.grading import procedural, reward_function, symbolic
from tasks.grading.jobs import DIED, MAX_REASON_CHARS, WALL_PER_CPU, Job, Reply, decode_job, encode

_QUEUE_PER_CHILD: Final = 4
"""Jobs handed to a child ahead of time, so that it never waits for the supervisor."""
_MAX_QUEUE_CHARS: Final = 16_384
_EXTRA_MEMORY_BYTES: Final = 2 << 30
"""What a child may take beyond what it starts with: the largest honest comparison took under 200 MB."""
_GC_THRESHOLD: Final = 20_000
_RECURSION_LIMIT: Final = 3000


def answer_job(job: Job) -> Reply:
    """Compute one job in this process."""
    try:
        if job.kind == "parse":
            return Reply("correct" if symbolic.can_parse(job.gold) else "bad_gold")
        if job.kind == "sample":
            return symbolic.differ_at_points(job.answer, job.gold)
        if job.kind == "procedural":
            return procedural.score_entry(job.task, job.answer, job.gold)
        if job.kind == "reward":
            return reward_function.call_function(job.task, job.gold)
        return symbolic.compare_symbolically(job.answer, job.gold)
    except MemoryError:
        return Reply("crashed", reason=f"out of memory: more than {_EXTRA_MEMORY_BYTES >> 30} GiB")
    except RecursionError:
        return Reply("unparsed")


@dataclass(slots=True, kw_only=True)
class _Child:
    pid: int
    connection: Connection
    imported: frozenset[str]
    """What the supervisor had imported when it forked this child."""
    jobs: deque[tuple[int, Job]] = field(default_factory=deque)
    deadline: float = 0.0

    @property
    def has_room(self) -> bool:
        """Whether another job may wait here; what waits stays small, so that sending to a hung child never blocks."""
        size = sum(len(job.answer) + len(job.gold) for _, job in self.jobs)
        return len(self.jobs) < _QUEUE_PER_CHILD and size < _MAX_QUEUE_CHARS


def _limit_memory() -> None:
    """Bound the address space, where the platform can; an unbounded factorial would take the machine with it."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - a kernel file, no path to handle
            size = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _EXTRA_MEMORY_BYTES, size + _EXTRA_MEMORY_BYTES))
    except (ImportError, OSError, ValueError):
        return


def _run_child(connection: Connection, supervisor: int, timeout_s: float) -> None:
    end_with_parent(supervisor)  # a hung child reads no pipe
    _limit_memory()
    sys.setrecursionlimit(_RECURSION_LIMIT)
    while True:
        try:
            job: Job = connection.recv()
        except EOFError:
            return
        # a user's function may wait for something; algebra only computes, and a busy machine is no verdict on it
        signal.setitimer(signal.ITIMER_PROF, 0 if job.kind == "reward" else timeout_s)
        reply = answer_job(job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(reply)


def _import_of(job: Job) -> str | None:
    """Return the name of what must be imported before `job` can be computed; None when nothing is."""
    if job.kind == "procedural":
        return "reasoning_gym"
    return job.task if job.kind == "reward" else None


class Supervisor:
    """Hands jobs from one pipe to children and their replies to another."""

    def __init__(self, *, jobs_fd: int, replies_fd: int, num_processes: int, timeout_s: float) -> None:
        self._jobs_fd = jobs_fd
        self._replies_fd = replies_fd
        self._num_processes = num_processes
        self._timeout_s = timeout_s
        self._overdue = Reply("timeout", reason=f"no verdict within {timeout_s:g} s")
        self._waiting: deque[tuple[int, Job]] = deque()
        self._children: list[_Child] = []
        self._imported: set[str] = set()
        self._buffer = b""
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Work until the jobs' pipe closes; then end the children, finished or not."""
        self._selector.register(self._jobs_fd, selectors.EVENT_READ, None)
        is_open = True
        while is_open:
            self._dispatch()
            for key, _ in self._selector.select(self._time_left()):
                if key.data is None:
                    is_open = self._read_jobs()
                else:
                    self._collect(key.data)
            self._end_overdue()
        for child in list(self._children):
            self._end(child)

    def _wall_limit_s(self, job: Job) -> float:
        return self._timeout_s if job.kind == "reward" else WALL_PER_CPU * self._timeout_s

    def _time_left(self) -> float | None:
        deadlines = [child.deadline for child in self._children if child.jobs]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _read_jobs(self) -> bool:
        data = os.read(self._jobs_fd, 1 << 16)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self._waiting.extend(decode_job(line) for line in lines)
        return bool(data)

    def _dispatch(self) -> None:
        while self._waiting:
            number, job = self._waiting[0]
            self._import_for(job)
            child = self._choose_child(job)
            if child is None:
                return
            self._waiting.popleft()
            if not child.jobs:
                child.deadline = time.monotonic() + self._wall_limit_s(job)
            child.jobs.append((number, job))
            try:
                child.connection.send(job)
            except OSError:
                self._lose(child)

    def _import_for(self, job: Job) -> None:
        """Import once, for all children to come, what takes a job seconds to import and a child's memory to hold."""
        name = _import_of(job)
        if name is None or name in self._imported:
            return
        if job.kind == "procedural":
            procedural.import_scorers()
        else:
            with suppress(Exception):  # the child that calls the function meets the same error and reports it
                reward_function.find_function(name)
        self._imported.add(name)
        self._retire_idle()

    def _retire_idle(self) -> None:
        for child in list(self._children):
            if not child.jobs:
                self._end(child)

    def _choose_child(self, job: Job) -> _Child | None:
        name = _import_of(job)
        able = [child for child in self._children if name is None or name in child.imported]
        idle = next((child for child in able if not child.jobs), None)
        if idle is not None:
            return idle
        if len(self._children) < self._num_processes:
            return self._fork()
        return min((child for child in able if child.has_room), key=lambda child: len(child.jobs), default=None)

    def _fork(self) -> _Child:
        ours, theirs = Pipe()
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                for descriptor in (self._jobs_fd, self._replies_fd, ours.fileno()):
                    os.close(descriptor)
                _run_child(theirs, supervisor, self._timeout_s)
            finally:
                os._exit(0)
        theirs.close()
        child = _Child(pid=pid, connection=ours, imported=frozenset(self._imported))
        self._children.append(child)
        self._selector.register(ours, selectors.EVENT_READ, child)
        return child

    def _collect(self, child: _Child) -> None:
        if child not in self._children:
            return  # ended earlier in this round
        try:
            reply: Reply = child.connection.recv()
        except (EOFError, OSError):
            self._lose(child)
            return
        number, _ = child.jobs.popleft()
        if child.jobs:
            child.deadline = time.monotonic() + self._wall_limit_s(child.jobs[0][1])
        self._reply(number, reply)
        if child.imported < self._imported and not child.jobs:
            self._end(child)  # one that has all imports takes its place

    def _lose(self, child: _Child) -> None:
        """A child died: its first job is the culprit, the others go back to the front of the queue."""
        status = self._end(child, is_dead=True)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
            self._blame(child, self._overdue)
            return
        cause = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
        self._blame(child, Reply("crashed", reason=f"{DIED}: {cause}"))

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for child in list(self._children):
            if child.jobs and now >= child.deadline and not child.connection.poll():
                self._end(child)
                self._blame(child, self._overdue)

    def _blame(self, child: _Child, reply: Reply) -> None:
        if child.jobs:
            number, _ = child.jobs.popleft()
            self._reply(number, reply)
        self._waiting.extendleft(reversed(child.jobs))

    def _end(self, child: _Child, *, is_dead: bool = False) -> int:
        """Kill a child unless it died by itself, and return its wait status."""
        self._children.remove(child)
        self._selector.unregister(child.connection)
        child.connection.close()
        if not is_dead:
            os.kill(child.pid, signal.SIGKILL)
        _, status = os.waitpid(child.pid, 0)
        return status

    def _reply(self, number: int, reply: Reply) -> None:
        reason = None if reply.reason is None else reply.reason[:MAX_REASON_CHARS]
        data = encode(number, reply._replace(reason=reason))
        while data:
            data = data[os.write(self._replies_fd, data) :]


def main() -> None:
    """Serve the pipes given as stdin and stdout."""
    parser = argparse.ArgumentParser(prog="python -m tasks.grading.worker", description=__doc__)
    parser.add_argument("--num-processes", type=int, required=True)
    parser.add_argument("--timeout-s", type=float, required=True)
    arguments = parser.parse_args()
    replies_fd = claim_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle; it closes our pipe
    symbolic.warm_up()
    gc.collect()
    gc.freeze()  # collections in a child would touch, and so copy, every page that it shares with this process
    gc.set_threshold(_GC_THRESHOLD)
    Supervisor(
        jobs_fd=0, replies_fd=replies_fd, num_processes=arguments.num_processes, timeout_s=arguments.timeout_s
    ).run()


if __name__ == "__main__":
    main()
