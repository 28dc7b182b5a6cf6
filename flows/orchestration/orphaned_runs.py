"""Runs whose worker is gone: nobody else says how they ended, and until then they hold their places in the queue.

Prefect leaves the process of a run behind when its worker is killed, and has a run as running that a reboot has ended.
"""

from contextlib import suppress
from typing import Final
from uuid import UUID

import psutil
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, StateType, WorkerStatus
from prefect.states import Cancelled, Crashed

from infra.machine.processes import end_processes
from tasks.alerts.task import follow_up_run

_AT_WORK: Final = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
_RUN_ID: Final = "PREFECT__FLOW_RUN_ID"
"""Environment variable of a run's process, and of those that it starts."""
_WHY: Final = "its worker is gone"


def end_leftover_runs(client: SyncPrefectClient, pool: str, worker: str, *, grace_s: float) -> int:
    """End the runs of a work pool that are at work, and return how many there were; call it while no worker serves it.

    Their processes on this machine have `grace_s` seconds to stop what they have started. A run is `Crashed` then, upon
    which a watcher tries again, or `Cancelled` where that was asked for. While a worker of another name than `worker`
    serves the pool too, nothing is touched: the runs may be its own.

    Raises:
        httpx.HTTPError, PrefectException: the server does not answer.
    """
    runs = _runs_at_work(client, pool)
    if not runs or _is_served(client, pool, worker):
        return 0
    end_processes(_processes_of({run.id for run in runs}), grace_s=grace_s)
    for run in _runs_at_work(client, pool):  # some have told their own end
        is_unwanted = run.state is not None and run.state.type == StateType.CANCELLING
        client.set_flow_run_state(run.id, Cancelled() if is_unwanted else Crashed(message=_WHY), force=True)
        if not is_unwanted and run.deployment_id is not None:
            follow_up_run(client, run.id)
    return len(runs)


def _runs_at_work(client: SyncPrefectClient, pool: str) -> list[FlowRun]:
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_AT_WORK))),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
    )


def _is_served(client: SyncPrefectClient, pool: str, worker: str) -> bool:
    """Whether a worker of another name gives signs of life."""
    workers = client.read_workers_for_work_pool(pool)
    return any(each.status == WorkerStatus.ONLINE and each.name != worker for each in workers)


def _processes_of(runs: set[UUID]) -> list[psutil.Process]:
    """Return the first process of each run, which ends what it has started."""
    wanted = set(map(str, runs))
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_RUN_ID) in wanted:
                found[process.pid] = process
    return [process for process in found.values() if _parent_of(process) not in found]


def _parent_of(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return process.ppid()
    return 0
