"""How the command ends when it is told to: Ctrl-C, SIGTERM, a closed terminal.

The first signal becomes an exception, so that workers are stopped and the run is left resumable. Afterwards the process
ends within seconds, whatever Prefect's threads still wait for.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

import psutil

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked the command to end; no Exception, as nothing may take it for a failure and go on."""

    def __init__(self, number: int) -> None:
        """`number`: the signal's."""
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """128 + signal, as shells report it."""
        return 128 + self.number


@contextmanager
def interruptible() -> Generator[None]:
    """Raise Interrupted in the block on SIGTERM, SIGHUP or Ctrl-C. Main thread only.

    A signal that the process was started to ignore, as nohup does with SIGHUP, stays ignored.

    Raises:
        Interrupted: a signal came.
    """
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in heeded}
    try:
        yield
    except KeyboardInterrupt as exc:
        raise Interrupted(signal.SIGINT) from exc
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_within(patience_s: float, exit_code: int) -> None:
    """End this process with `exit_code` in `patience_s` seconds at the latest, its child processes too.

    Prefect's threads wait at exit for their queues to empty, without a limit, and a queue whose server is gone never
    empties.
    """
    threading.Thread(target=_end, args=(patience_s, exit_code), daemon=True).start()


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)


def _end(patience_s: float, exit_code: int) -> None:
    time.sleep(patience_s)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    os._exit(exit_code)
