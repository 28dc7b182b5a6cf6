"""The GPU budget of a Prefect server: evaluations by hand that share one GPU take turns, and a killed one gives way."""

import os
import re
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.evaluation_commands import ROOT, Command, num_finished
from tests.support.prefect_server import CONFIG, Served, free_port, prefect_server, wait_for

pytestmark = [pytest.mark.needs_prefect, pytest.mark.needs_engine, pytest.mark.timeout(1800)]

PACE: dict[str, Any] = {"engine": {"stand_in": {"step_s": 0.05}}, "rollout": {"max_concurrent_rollouts": 4}}
NUM_SAMPLES = 24
FREED_S = 450.0
"""Longest time until the server frees the GPU of a killed process; it looks every 15 s."""
HOLD = """
import sys, threading
from flows.orchestration.gpu_budget import gpus_held
from schemas.config import load_config
with gpus_held(load_config("eval.yaml", []), threading.Event(), lease_s=60.0):
    sys.stdin.read()
"""
"""What `milepost evaluate` does while it generates, with the shortest lease that Prefect takes."""


@pytest.fixture
def server(own_environment: dict[str, str], tmp_path: Path) -> Iterator[Served]:
    """A server without a worker, and whoever uses it from the folder of the test."""
    port = free_port()
    variables = own_environment | {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    with prefect_server(variables, tmp_path, port=port) as server:
        yield Served(server.process, server.api, tmp_path, variables)


@pytest.fixture
def start(server: Served) -> Iterator[Any]:
    """Starts `milepost` beside the server."""
    with ExitStack() as stack:

        def start(*words: str) -> Command:
            command = Command(server.folder, words, dict(server.environment), cores=sorted(os.sched_getaffinity(0)))
            stack.callback(command.process.wait)
            stack.callback(command.process.kill)
            return command

        (server.folder / "eval.yaml").write_text(yaml.safe_dump(CONFIG | PACE))
        yield start


@pytest.fixture
def hold(server: Served) -> Iterator[Any]:
    """Starts a process that holds the GPUs of one evaluation."""
    with ExitStack() as stack:

        def hold() -> subprocess.Popen[bytes]:
            environment = dict(server.environment) | {"PYTHONPATH": str(ROOT)}
            process = subprocess.Popen(
                [sys.executable, "-c", HOLD], cwd=server.folder, env=environment, stdin=subprocess.PIPE
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield hold


def budget(server: Served) -> dict[str, Any]:
    found: dict[str, Any] = server.ask("v2/concurrency_limits/milepost-gpus", method="GET")
    return found


def test_evaluations_take_turns_and_a_killed_one_gives_way(server: Served, start: Any, hold: Any) -> None:
    start("deploy", "--gpus", "4").success()
    changed = start("deploy", "--gpus", "1").success()
    assert re.search(r'"GPU budget","name":"milepost-gpus","id":"[^"]+","change":"updated"', changed)
    start("evaluate", "eval.yaml", "rollout.backend=vllm:d2", "cluster.fileroot=out").failure(
        2, "takes 2 GPUs", "allowed: the budget milepost-gpus of the Prefect server, 1", "milepost deploy --gpus N"
    )
    assert not list((server.folder / "out" / "runs").glob("*")), "nothing was begun"
    second, third = (server.folder / name for name in ("second", "third"))
    killed = hold()
    wait_for(lambda: budget(server)["active_slots"] == 1, "lease")
    waiting = [start("evaluate", "eval.yaml", f"cluster.fileroot={folder}") for folder in (second, third)]
    for command in waiting:
        command.wait_for(lambda command=command: "for 1 of the GPUs of the budget milepost-gpus" in command.messages)
    assert all(num_finished(folder) == 0 for folder in (second, third))
    killed.kill()

    def done() -> list[int]:
        return sorted(num_finished(folder) for folder in (second, third))

    wait_for(lambda: done()[1] > 0, "evaluation that goes on", timeout_s=FREED_S)
    while (counts := done())[1] < NUM_SAMPLES:
        assert counts[0] == 0 or done()[1] == NUM_SAMPLES, counts  # they are read one after the other
        time.sleep(0.2)
    for command in waiting:
        assert re.search(r"waits since \d\d:\d\d:\d\d UTC", command.messages)
        assert command.messages.count("waits since") == 1
        assert command.summary().num_scored == NUM_SAMPLES
    wait_for(lambda: budget(server)["active_slots"] == 0, "end of all loans")
    start("deploy", "--gpus", "0").success()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        budget(server)
