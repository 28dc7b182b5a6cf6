"""Delivery that its sender never waits for: a bounded queue and a daemon thread.

Made for code inside a training loop: `put` takes microseconds and raises nothing, whatever the disk or the network
does. What cannot be delivered is dropped, with one line in the log per cause.
"""

import atexit
import logging
import queue
import threading
from collections.abc import Callable
from time import monotonic
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_CAPACITY: Final = 64
"""Items that wait at most: a trainer announces a few per hour, so a full queue is a destination that hangs."""
_END_S: Final = 2.0
"""Seconds that the end of the process waits for what is still queued."""

logger = logging.getLogger(__name__)


class Outbox(Generic[T]):
    """Hands items to `deliver` in another thread, in order, one at a time."""

    def __init__(self, name: str, deliver: Callable[[T], object]) -> None:
        """`name` says in the log what was not delivered."""
        self._name = name
        self._deliver = deliver
        self._queue: queue.Queue[T] = queue.Queue(_CAPACITY)
        self._thread: threading.Thread | None = None
        self._causes: set[str] = set()
        atexit.register(self.drain, _END_S)

    def put(self, item: T) -> None:
        """Queue an item, or drop it when the queue is full or no thread can be started; returns at once."""
        try:
            if self._thread is None or not self._thread.is_alive():  # a fork of the process has lost it
                self._thread = threading.Thread(target=self._run, name=f"milepost-{self._name}", daemon=True)
                self._thread.start()
            self._queue.put_nowait(item)
        except RuntimeError as exc:  # as many threads as may be, or an interpreter that ends
            self._drop("thread", str(exc))
        except queue.Full:
            self._drop("queue", f"{_CAPACITY} wait already, the destination hangs")

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that was queued is delivered or dropped; return whether it was so within `timeout_s`."""
        limit = monotonic() + timeout_s
        with self._queue.all_tasks_done:
            return self._queue.all_tasks_done.wait_for(
                lambda: not self._queue.unfinished_tasks, max(0.0, limit - monotonic())
            )

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            try:
                self._deliver(item)
            except Exception as exc:  # noqa: BLE001 - whatever it is, it must not reach the training loop
                reason = exc.__cause__ or exc  # the outside world's own words
                self._drop(f"{type(reason).__name__} {getattr(reason, 'errno', '')}", str(reason))
            finally:
                self._queue.task_done()

    def _drop(self, cause: str, reason: str) -> None:
        if cause not in self._causes:
            self._causes.add(cause)
            logger.warning(
                "milepost: %s dropped: %s; training goes on, and the same is not said again", self._name, reason
            )
