"""Runs that a worker has left behind end, their places in the queue come free, and the same evaluation goes on."""

import signal
import urllib.error
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import psutil
import pytest
from prefect.client.orchestration import SyncPrefectClient

from flows.orchestration.orphaned_runs import end_leftover_runs
from infra.fileroot.run_directory import list_runs
from tests.support.evaluation_commands import ended, num_finished
from tests.support.prefect_server import CONFIG, ask_api, free_port, serve, wait_for

pytestmark = [pytest.mark.needs_prefect, pytest.mark.timeout(1800)]

POOL = "milepost"
PACE: dict[str, Any] = {"engine": {"stand_in": {"step_s": 1.0}}, "rollout": {"max_concurrent_rollouts": 4}}
"""24 samples in minutes: the run is not over before the next server is there."""


@pytest.fixture
def run(api: str) -> Iterator[str]:
    """A run of the pool that is at work, and nobody is at it."""
    try:
        ask_api(api, "work_pools/", {"name": POOL, "type": "process"})
    except urllib.error.HTTPError as exc:
        if exc.code != HTTPStatus.CONFLICT:  # the pool of an earlier test
            raise
    flow = ask_api(api, "flows/", {"name": "evaluate"})["id"]
    deployment = ask_api(api, "deployments/", {"name": "evaluate", "flow_id": flow, "work_pool_name": POOL})["id"]
    run = str(ask_api(api, f"deployments/{deployment}/create_flow_run")["id"])
    set_state(api, run, "RUNNING")
    yield run
    set_state(api, run, "CANCELLED")
    # other tests use this server too: a watcher prefers a deployment where there is one
    ask_api(api, f"deployments/{deployment}", method="DELETE")


def set_state(api: str, run: str, name: str) -> None:
    ask_api(api, f"flow_runs/{run}/set_state", {"state": {"type": name}, "force": True})


def end_leftovers(api: str, worker: str, pool: str = POOL) -> int:
    with SyncPrefectClient(api) as client:
        return end_leftover_runs(client, pool, worker, grace_s=1.0)


def state_of(api: str, run: str) -> str:
    return str(ask_api(api, f"flow_runs/{run}", method="GET")["state"]["type"])


@pytest.mark.parametrize(
    ("before", "after"), [("RUNNING", "CRASHED"), ("PENDING", "CRASHED"), ("CANCELLING", "CANCELLED")]
)
def test_a_run_without_a_process_is_ended(api: str, run: str, before: str, after: str) -> None:
    set_state(api, run, before)
    assert end_leftovers(api, "mine") == 1
    assert state_of(api, run) == after
    assert end_leftovers(api, "mine") == 0


def test_what_waits_for_a_worker_is_left_alone(api: str, run: str) -> None:
    set_state(api, run, "SCHEDULED")
    assert end_leftovers(api, "mine") == 0
    assert end_leftovers(api, "mine", "another pool") == 0
    assert state_of(api, run) == "SCHEDULED"


def test_what_another_worker_may_be_at_is_left_alone(api: str, run: str) -> None:
    ask_api(api, f"work_pools/{POOL}/workers/heartbeat", {"name": "of another machine"})
    assert end_leftovers(api, "mine") == 0
    assert end_leftovers(api, "of another machine") == 1


@pytest.mark.needs_engine
def test_a_killed_server_goes_on_when_it_is_started_again(
    engine_python: Path, demo_checkpoint: Path, tmp_path: Path
) -> None:
    fileroot, port = tmp_path / "out", free_port()
    with serve(tmp_path, port=port) as server:
        server.deploy(CONFIG | PACE | {"cluster": {"fileroot": str(fileroot)}})
        run = server.start("evaluate")
        wait_for(lambda: num_finished(fileroot) >= 1, "a sample")
        parts = psutil.Process(server.process.pid).children()
        server.process.kill()
        assert server.process.wait() == -signal.SIGKILL
        assert ended(parts, timeout_s=60.0)
    with serve(tmp_path, port=port) as server:
        assert server.finish(run) == "CRASHED", server.state(run)
        quick = CONFIG | {"cluster": {"fileroot": str(fileroot)}}
        assert server.finish(server.start("evaluate", config=quick)) == "COMPLETED"
    assert len(list(list_runs(fileroot))) == 1
    assert num_finished(fileroot) == 24
