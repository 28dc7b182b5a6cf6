"""The threads beside a worker's engine: one tells that it lives, one ends it when it should.

The engine keeps the main thread for seconds at a time (loading, a long prefill); neither may wait for it.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from schemas.errors import MilepostError
from schemas.inference import Heartbeat
from schemas.states import WorkerPhase
from tasks.inference.exchange.worker_files import write_heartbeat

_PATIENCE_S: Final = 30.0
"""A network file system that fails over is back within seconds; a disk that is read-only stays so."""


class WorkState(NamedTuple):
    """How far a worker is with what it was given; replaced as one, as the heartbeat may look at any moment."""

    num_started: int
    num_work: int
    cut_number: int


_NO_WORK: Final = WorkState(0, 0, 0)


@dataclass(slots=True, kw_only=True)
class WorkerProgress:
    """Counters of a running worker: written by its main thread, read by the heartbeat."""

    batch_size: int = 0
    phase: WorkerPhase = WorkerPhase.STARTING
    num_done: int = 0
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    num_steps: int = 0
    work: WorkState = _NO_WORK

    def heartbeat(self, now: float) -> Heartbeat:
        """Return what heartbeat.json says at `now` (Unix seconds)."""
        return Heartbeat(
            phase=self.phase,
            pid=os.getpid(),
            time=now,
            num_done=self.num_done,
            num_completion_tokens=self.num_completion_tokens,
            batch_size=self.batch_size,
            num_steps=self.num_steps,
            **self.work._asdict(),
        )


class HeartbeatThread:
    """Replaces heartbeat.json and syncs the journal once per interval."""

    def __init__(
        self,
        folder: Path,
        progress: WorkerProgress,
        *,
        interval_s: float,
        sync: Callable[[], None],
        give_up: Callable[[str], None],
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """Take what to tell, and where.

        Args:
            folder: the worker's.
            progress: what is told.
            interval_s: seconds between two beats.
            sync: makes the journal survive a power cut; its errors are only told, as the next append meets them too.
            give_up: called, with the reason, once nothing could be written for `patience_s`: to its controller a worker
                that cannot be heard is hung.
            patience_s: longest time, in seconds, that the folder may be out of reach.
        """
        self._folder = folder
        self._progress = progress
        self._interval_s = interval_s
        self._sync = sync
        self._give_up = give_up
        self._patience_s = patience_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Beat at once, then each interval."""
        self._thread.start()

    def stop(self) -> None:
        """Beat a last time and end."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        heard = time.monotonic()
        while True:
            stopping = self._stopping.is_set()
            try:
                self._sync()
                write_heartbeat(self._folder, self._progress.heartbeat(time.time()))
                heard = time.monotonic()
            except (OSError, MemoryError, MilepostError) as exc:
                why = str(exc) or type(exc).__name__
                print(f"heartbeat: {why}", file=sys.stderr, flush=True)
                if time.monotonic() - heard > self._patience_s:
                    self._give_up(f"{self._folder} could not be written for {self._patience_s:g} s: {why}")
            if stopping:
                return
            self._stopping.wait(self._interval_s)


def call_when_asked_to_stop(stop: Callable[[str], None], *, with_controller: bool, interval_s: float) -> None:
    """Call `stop(reason)` from a thread of its own on SIGTERM or SIGINT and, `with_controller`, when stdin ends.

    Python runs a signal's handler only once the main thread leaves the engine's native code; the C handler writes to
    the wake-up descriptor at once. A process that the controller forked may hold the pipe open after its death; so the
    parent is looked at too, once per interval.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _note_signal)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _start(lambda: _stop_on_signal(reader, stop), "signals")
    if with_controller:
        parent = os.getppid()
        _start(lambda: _stop_at_end_of_input(stop), "controller-pipe")
        _start(lambda: _stop_when_orphaned(parent, interval_s, stop), "controller-process")


def call_when_silent(path: Path, stop: Callable[[str], None], *, silence_s: float, interval_s: float) -> None:
    """Call `stop(reason)` from a thread of its own once the file at `path` has stood still for `silence_s`.

    What cannot be read stands still too: a worker without the run's folder cannot finish anything.
    """
    _start(lambda: _stop_when_silent(path, silence_s, interval_s, stop), "run-owner")


def end_children() -> None:
    """Kill the processes that the engine started: they must not outlive their worker."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()


def _start(target: Callable[[], None], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


def _note_signal(number: int, frame: FrameType | None) -> None:
    """Exists so that the signal no longer ends the process by itself."""


def _stop_on_signal(reader: int, stop: Callable[[str], None]) -> None:
    while True:
        number = os.read(reader, 1)[0]
        if number in (signal.SIGTERM, signal.SIGINT):
            stop(f"received {signal.Signals(number).name}")


def _stop_at_end_of_input(stop: Callable[[str], None]) -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    stop("the controller is gone: its pipe closed")


def _stop_when_orphaned(parent: int, interval_s: float, stop: Callable[[str], None]) -> None:
    while os.getppid() == parent:
        time.sleep(interval_s)
    stop("the controller is gone: this process has another parent")


def _stop_when_silent(path: Path, silence_s: float, interval_s: float, stop: Callable[[str], None]) -> None:
    last, changed = b"", time.monotonic()
    while time.monotonic() - changed < silence_s:
        time.sleep(interval_s)
        with suppress(OSError, MemoryError):
            beat = path.read_bytes()
            if beat != last:
                last, changed = beat, time.monotonic()
    stop(f"the controller is gone: {path} has not changed for {silence_s:g} s")
