"""`milepost watch` by a Prefect server as teams have one: whatever is killed, cancelled or away, each model once."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prefect.exceptions import MissingResult, PrefectHTTPStatusError
from prefect.states import Crashed, Failed, exception_to_failed_state

from flows.orchestration.deployment_launcher import read_cause
from infra.fileroot.run_directory import list_runs
from schemas.errors import EngineError, LaunchError, SetupError, TransientError
from tests.support.checkpoint_folders import make_checkpoint
from tests.support.evaluation_commands import END_S, SUMS, Command, num_finished
from tests.support.prefect_server import PrefectServer, Served, free_port, prefect_server, wait_for
from tests.support.published_runs import runs
from tests.support.watch_status import watch_status

pytestmark = [pytest.mark.needs_prefect, pytest.mark.needs_engine, pytest.mark.timeout(2400)]

CONFIG = """
experiment_name: watched
actor: {path: checkpoint}
engine: {stand_in: {mean_tokens: 4, step_s: 0.15}}
valid_dataset: {path: SUMS, limit: 60}
gconfig: {max_new_tokens: 16}
rollout: {max_concurrent_rollouts: 1}
watch: {settle_s: 1, poll_s: 1, retry_after_s: 1, launcher: deployment}
"""
LEASES = {"PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem"}


class Team:
    """A bare Prefect server and a worker, each of which may go and come back, and a folder of checkpoints."""

    def __init__(self, folder: Path, environment: dict[str, str], stack: ExitStack) -> None:
        self.folder = folder
        self.root = folder / "ck"
        self.fileroot = folder / "out"
        self._stack = stack
        self._port = free_port()
        self.environment = environment | LEASES | {"PREFECT_API_URL": f"http://127.0.0.1:{self._port}/api"}
        self.root.mkdir()
        (folder / "config.yaml").write_text(
            f"{CONFIG.replace('SUMS', str(SUMS))}\ncluster: {{fileroot: {self.fileroot}}}\n"
        )
        self.server = self.start_server()
        self.prefect = Served(self.server.process, self.environment["PREFECT_API_URL"], folder, self.environment)

    def start_server(self) -> PrefectServer:
        self.server = self._stack.enter_context(prefect_server(self.environment, self.folder, port=self._port))
        return self.server

    def start_worker(self) -> psutil.Process:
        words = ["-m", "prefect", "worker", "start", "--pool", "milepost", "--type", "process"]
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env=self.environment | {"PREFECT_WORKER_QUERY_SECONDS": "2"},
                stdout=log,
                stderr=log,
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return psutil.Process(process.pid)

    def milepost(self, *words: str) -> Command:
        command = Command(self.folder, words, self.environment, cores=sorted(os.sched_getaffinity(0)))
        self._stack.callback(command.process.wait)
        self._stack.callback(command.process.kill)
        return command

    def watch(self, *words: str) -> Command:
        return self.milepost("watch", "config.yaml", "ck", *words)

    def flow_runs(self) -> list[dict[str, Any]]:
        return self.prefect.runs("evaluate")

    def cells(self) -> dict[str, tuple[str, str]]:
        """State and detail of each checkpoint's evaluation."""
        status = watch_status(self.folder / "config.yaml", self.root)
        return {
            Path(one["path"]).name: (one["cells"][0]["state"], one["cells"][0]["detail"])
            for one in status["checkpoints"]
        }


@pytest.fixture
def team(own_environment: dict[str, str], tmp_path: Path) -> Iterator[Team]:
    with ExitStack() as stack:
        yield Team(tmp_path, own_environment, stack)


def types(runs: list[dict[str, Any]]) -> list[str]:
    return [run["state_type"] for run in runs]


def test_what_the_server_says_of_an_end_tells_an_outage_from_a_failure() -> None:
    def cause(error: Exception) -> str:
        said = asyncio.run(exception_to_failed_state(error, message="Flow run encountered an exception:")).message
        return read_cause(Failed(message=said))

    assert cause(SetupError("the cluster does not answer: no")) == cause(TransientError("busy: no")) == "away"
    assert cause(LaunchError("scheduler.slurm.partition is 'gpuu'")) == "impossible"
    for status, expected in ((503, "away"), (401, "away"), (429, "away"), (422, "failed"), (413, "failed")):
        response = httpx.Response(status, request=httpx.Request("GET", "http://127.0.0.1:4200/api/flow_runs"))
        with pytest.raises(httpx.HTTPStatusError) as caught:
            response.raise_for_status()
        assert cause(PrefectHTTPStatusError.from_httpx_error(caught.value)) == expected, status
    assert cause(httpx.ConnectError("no")) == cause(httpx.ReadTimeout("")) == "away"
    assert cause(MissingResult("no")) == "failed"
    assert cause(EngineError("SetupError: no")) == cause(ValueError("no")) == "failed"
    assert read_cause(Crashed(message="Flow run process exited with non-zero status code -9.")) == "lost"


def test_a_run_that_nobody_is_at_any_more_is_found_and_resumed_by_another_watcher(team: Team) -> None:
    """The watcher, the worker and the process of the flow run are killed: nobody is left to say so."""
    team.milepost("deploy", "config.yaml").success()
    worker = team.start_worker()
    make_checkpoint(team.root / "checkpoint-1", fill=1)
    first = team.watch()
    wait_for(lambda: team.fileroot.is_dir() and num_finished(team.fileroot) >= 4, "samples")
    first.process.kill()
    for process in (worker, *worker.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended with whoever started it
            process.kill()
    team.start_worker()
    both = [team.watch(), team.watch()]
    wait_for(lambda: runs(team.folder), "published run")
    wait_for(lambda: types(team.flow_runs()) == ["CRASHED", "COMPLETED"], "end of the flow run")
    assert "nobody is at this run, which was Running" in team.flow_runs()[0]["state"]["message"]
    for command in both:
        assert command.signal_group(signal.SIGINT) < END_S
        assert "Traceback" not in command.messages
    (run,) = list_runs(team.fileroot)
    assert [attempt.number for attempt in run.read_state().attempts] == [1, 2]
    make_checkpoint(team.root / "checkpoint-2", fill=2)
    team.milepost("deploy", "config.yaml", "--root", "ck").success()
    reconcile = team.prefect.ask("deployments/name/reconcile/reconcile", method="GET")
    assert reconcile["parameters"]["root"] == str(team.root)
    assert [schedule["active"] for schedule in reconcile["schedules"]] == [True]
    # as a schedule does whose last run is still at work
    for _ in range(2):
        team.prefect.ask(f"deployments/{reconcile['id']}/create_flow_run", {})
    wait_for(lambda: len(runs(team.folder)) == 2, "second published run")
    wait_for(lambda: types(team.flow_runs()) == ["CRASHED", "COMPLETED", "COMPLETED"], "end of the second flow run")
    query = {"deployments": {"id": {"any_": [reconcile["id"]]}}}  # its schedule may have been quicker
    wait_for(
        lambda: any(
            "is evaluated" in line["message"]
            for run in team.prefect.ask("flow_runs/filter", query)
            for line in team.prefect.logs(run["id"])
        ),
        "line",
    )
    assert set(Counter(run["weight_digest"] for run in runs(team.folder)).values()) == {1}


def test_what_people_and_outages_do_to_a_run_that_waits(team: Team) -> None:
    """No worker serves the pool; the server goes away, and comes back."""
    team.milepost("deploy").success()
    watcher = team.watch("watch.max_attempts=1", "watch.order=oldest")
    for number, end in enumerate((cancel, delete)):
        make_checkpoint(team.root / f"checkpoint-{number}", fill=number)
        wait_for(
            lambda number=number: len(team.flow_runs()) > 0 and set(types(team.flow_runs())) & {"SCHEDULED"}, "run"
        )
        end(team, team.flow_runs()[-1]["id"])
        wait_for(lambda number=number: team.cells()[f"checkpoint-{number}"][0] == "failed", "end of the attempt")
    assert "cancelled" in team.cells()["checkpoint-0"][1]
    assert "deleted" in team.cells()["checkpoint-1"][1]
    team.server.end()
    make_checkpoint(team.root / "checkpoint-2", fill=2)
    watcher.wait_for(lambda: "no evaluation is launched until that is over" in watcher.messages)
    wait_for(lambda: "the Prefect server does not answer" in team.cells()["checkpoint-2"][1], "reason")
    team.start_server()
    wait_for(lambda: types(team.flow_runs())[-1:] == ["SCHEDULED"], "flow run")
    assert watcher.signal_group(signal.SIGINT) < END_S
    assert watcher.process.returncode == 130
    assert "Traceback" not in watcher.messages


def cancel(team: Team, run: str) -> None:
    team.prefect.ask(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLED", "message": "not this one"}})


def delete(team: Team, run: str) -> None:
    team.prefect.ask(f"flow_runs/{run}", method="DELETE")
