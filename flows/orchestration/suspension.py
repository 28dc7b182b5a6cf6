"""Suspending a run: what it generates with is stopped and its GPUs are given back, until it is resumed.

Prefect itself notices a suspension at the next task call, which is the end of all generation.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import Pause
from prefect.runtime import deployment, flow_run

from tasks.alerts.task import PREFECT_FAILURES

_POLL_S: Final = 5.0
"""Seconds between two looks at the state of the run."""


class Suspension:
    """Whether the flow run of this process has been suspended."""

    def __init__(self, run_id: UUID, stopping: threading.Event) -> None:
        """`stopping` is set, once it has been, so that the replicas end."""
        self._run_id = run_id
        self._stopping = stopping
        self._ended = threading.Event()
        self._state: State[object] | None = None

    def watch(self) -> None:
        """Look at the run's state until `end`, or until it has been suspended."""
        while not self._ended.wait(_POLL_S):
            with suppress(*PREFECT_FAILURES), get_client(sync_client=True) as client:
                state = client.read_flow_run(self._run_id).state
                if state is not None and state.is_paused() and state.name == "Suspended":
                    self._state = state
                    self._stopping.set()
                    return

    def end(self) -> None:
        """Look no more."""
        self._ended.set()

    def check(self) -> None:
        """Check that the run goes on.

        Raises:
            Pause: it has been suspended; the process ends, and another one goes on when the run is resumed.
        """
        if self._state is not None:
            raise Pause(state=self._state)


@contextmanager
def suspension_heeded(stopping: threading.Event) -> Generator[Suspension | None]:
    """Set `stopping` when the flow run is suspended, and end the block as suspended then.

    None: a run of no deployment, which Prefect lets nobody suspend.

    Raises:
        Pause: the run was suspended; what went wrong in the block is the consequence.
    """
    if not (deployment.id and flow_run.id):
        yield None
        return
    suspension = Suspension(UUID(str(flow_run.id)), stopping)
    thread = threading.Thread(target=suspension.watch, name="suspension", daemon=True)
    thread.start()
    try:
        yield suspension
    except Exception:
        suspension.check()
        raise
    finally:
        suspension.end()
    suspension.check()
