"""Processes of this machine that are started before what they are to do is known.

Such a process prepares itself, with seconds of imports say, and waits for an Order: one line on its stdin. The launch
that would start the same program in the same environment on the same share of the machine adopts it; without one it is
ended. Its stdin closes with the process that started it, however that dies, and then it ends too.
"""

import atexit
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from infra.jobs.base import LaunchSpec, Placement
from schemas.base import Model

_LOOK_S: Final = 1.0
"""Time between two looks at the parent: another process may hold the pipe open after its death."""


class Order(Model):
    """What a process that waits is told, on one line."""

    arguments: tuple[str, ...]
    """Those of its program."""
    cwd: Path
    """Folder to work in."""
    log_path: Path
    """Where stdout and stderr are appended from now on."""


class _Waiting(NamedTuple):
    argv: tuple[str, ...]
    env: Mapping[str, str]
    placement: Placement
    process: subprocess.Popen[bytes]


class WaitingProcesses:
    """Those of this process."""

    def __init__(self) -> None:
        """There are none yet."""
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []

    def start(self, argv: Sequence[str], env: Mapping[str, str], placement: Placement) -> None:
        """Start one. Where that fails nothing is said: the launch will start the program itself, and tell."""
        with suppress(OSError):
            process = subprocess.Popen(
                argv,
                cwd="/",
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            pin(process.pid, placement)
            with self._lock:
                if not self._waiting:
                    atexit.register(self.end)
                self._waiting.append(_Waiting(tuple(argv), dict(env), placement, process))

    def adopt(self, spec: LaunchSpec, env: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """Return a living one that is what the launch would start, told what to do; None where there is none."""
        wanted = (spec.waiting_argv, dict(env), spec.placement)
        order = Order(arguments=spec.arguments, cwd=spec.cwd, log_path=spec.log_path)
        with self._lock:
            for waiting in [each for each in self._waiting if each[:3] == wanted]:
                self._waiting.remove(waiting)
                if _tell(waiting.process, order):
                    return waiting.process
                _end(waiting.process)
        return None

    def end(self) -> None:
        """End those that nobody has adopted."""
        with self._lock:
            while self._waiting:
                _end(self._waiting.pop().process)
        atexit.unregister(self.end)


waiting_processes: Final = WaitingProcesses()
"""What a command has started ahead of its launches."""


def pin(pid: int, placement: Placement) -> None:
    """Give a process that was just started its cores, before its program makes its first thread."""
    if placement.cpu_ids:
        with suppress(ProcessLookupError):  # one that has ended already needs no cores
            os.sched_setaffinity(pid, placement.cpu_ids)


def prepare_until_ordered(prepare: Callable[[], None]) -> tuple[str, ...]:
    """Run `prepare` in a process that waits, and return the arguments of its order once both are there.

    The process has gone to its folder and its log by then; it ends where it gets no order.
    """
    orders: list[Order] = []
    reader = threading.Thread(target=lambda: orders.append(_take_order()), name="order", daemon=True)
    reader.start()
    prepare()
    reader.join()
    return orders[0].arguments


def _tell(process: subprocess.Popen[bytes], order: Order) -> bool:
    if process.stdin is None or process.poll() is not None:
        return False
    try:
        process.stdin.write(order.model_dump_json().encode() + b"\n")
        process.stdin.flush()
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        with suppress(OSError):  # what it never read
            process.stdin.close()


def _take_order() -> Order:
    parent, line = os.getppid(), b""
    while not line.endswith(b"\n"):
        if select.select([0], [], [], _LOOK_S)[0]:
            read = os.read(0, 65_536)
            if not read:
                os._exit(0)
            line += read
        elif os.getppid() != parent:
            os._exit(0)
    order = Order.model_validate_json(line)
    log = os.open(order.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    os.chdir(order.cwd)
    return order
