"""`milepost watch` against a trainer that saves, rotates and saves again, killed and doubled: each model once."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli import app
from tests.support.checkpoint_folders import make_checkpoint
from tests.support.command_server import run_command
from tests.support.evaluation_bench import remove_template
from tests.support.evaluation_commands import END_S, ROOT, SUMS, Command
from tests.support.prefect_server import ask_api, free_port, wait_for
from tests.support.published_runs import runs
from tests.support.watch_status import watch_status

pytestmark = [pytest.mark.needs_prefect, pytest.mark.timeout(1200)]

CONFIG = """
experiment_name: watched
actor: {path: checkpoint}
engine: {stand_in: {mean_tokens: 4, step_s: 0.001}}
valid_dataset: {path: SUMS, limit: 6}
gconfig: {max_new_tokens: 16}
watch: {settle_s: 2, poll_s: 0.5, retry_after_s: 0}
"""
RECONCILE = """
import sys
from flows.watch import reconcile
from schemas.config import load_config
reconcile(load_config(sys.argv[1], [sys.argv[2]]), sys.argv[3])
"""
Watch = Callable[..., Command]


@pytest.fixture
def watch(environment: dict[str, str], api: str, tmp_path: Path) -> Iterator[Watch]:
    """Starts `milepost watch` or another command about the folder `ck` of the test's own."""
    started: list[Command] = []
    (tmp_path / "config.yaml").write_text(CONFIG.replace("SUMS", str(SUMS)))

    def start(*arguments: str, command: str = "watch", root: Path = tmp_path / "ck", api_url: str = api) -> Command:
        folder = tmp_path / f"command-{len(started)}"
        folder.mkdir()
        overrides = (f"cluster.fileroot={tmp_path / 'out'}", *arguments)
        words = [command, str(tmp_path / "config.yaml"), str(root), *overrides]
        started.append(
            Command(folder, words, environment | {"PREFECT_API_URL": api_url}, cores=sorted(os.sched_getaffinity(0)))
        )
        return started[-1]

    yield start
    for command in started:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


def status_of(folder: Path, *overrides: str) -> dict[str, Any]:
    return watch_status(folder / "config.yaml", folder / "ck", f"cluster.fileroot={folder / 'out'}", *overrides)


def wait_for_runs(folder: Path, number: int, timeout_s: float = 600.0) -> None:
    deadline = time.monotonic() + timeout_s
    while len(runs(folder)) < number:
        assert time.monotonic() < deadline, runs(folder)
        time.sleep(0.5)


def test_each_model_is_evaluated_once_whatever_is_killed_and_whoever_else_watches(watch: Watch, tmp_path: Path) -> None:
    trainer = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/support/trainer_process.py"), str(tmp_path / "ck"), "5", "2", "0.05"]
    )
    first = watch("watch.max_concurrent=2")
    wait_for_runs(tmp_path, 1)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    both = [watch(), watch()]
    assert trainer.wait(300) == 0
    status: dict[str, Any] = {}
    deadline = time.monotonic() + 600
    while set(status.get("counts", {"waiting": 1})) - {"done", "vanished", "writing"}:
        assert time.monotonic() < deadline, status
        time.sleep(1)
        status = status_of(tmp_path)
    for command in both:
        command.wait_for(lambda command=command: "evaluations" in command.messages)  # it heeds signals by then
        assert command.signal_group(signal.SIGINT) < END_S
        assert command.process.returncode == 130, command.messages
        assert "the same command goes on" in command.messages
    digests = Counter(run["weight_digest"] for run in runs(tmp_path))
    assert set(digests.values()) == {1}
    # the last folder was saved twice; what was rotated away before a watcher came for it is not there to be evaluated
    last = [run for run in runs(tmp_path) if run["checkpoint"] == str(tmp_path / "ck" / "checkpoint-50")]
    assert len(last) >= 1
    assert all(run["global_step"] == int(run["checkpoint"].rpartition("-")[2]) for run in runs(tmp_path))
    landed = list((tmp_path / "out" / "watch").glob("*/checkpoints/*/landed.json"))
    vanished = [one for one in landed if json.loads(one.read_text())["is_vanished"]]
    assert len(runs(tmp_path)) == len(landed) - len(vanished)
    assert list((tmp_path / "out" / "watch").glob("*/checkpoints/*/model")) == []
    once = json.loads(watch("--once").success())
    assert (once["num_done"], once["num_open"]) == (0, 0)


def test_failures_are_reported_and_the_command_says_so(watch: Watch, tmp_path: Path) -> None:
    remove_template(make_checkpoint(tmp_path / "ck" / "checkpoint-1"))
    outcome = watch("--once", "watch.max_attempts=1", "watch.settle_s=0")
    assert outcome.finish() == 1, outcome.messages
    assert "given up after 1 attempts" in outcome.messages
    assert "Traceback" not in outcome.messages
    status = json.loads(watch("watch.max_attempts=1", command="status").success())
    (cell,) = status["checkpoints"][0]["cells"]
    assert cell["state"] == "failed"
    assert "chat template" in cell["detail"]


def test_a_dump_that_nothing_loads_is_named_with_its_command_and_counted(watch: Watch, tmp_path: Path) -> None:
    dump = tmp_path / "ck" / "global_step_4"
    (dump / "actor").mkdir(parents=True)
    (dump / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"x")
    command = watch("--once")
    outcome = json.loads(command.success())
    assert [outcome[f"num_{name}"] for name in ("done", "failed", "open", "unusable")] == [0, 0, 0, 1]
    merge = f"python -m verl.model_merger merge --backend fsdp --local_dir {dump}/actor --target_dir {dump}-merged"
    assert f"{dump} cannot be evaluated as it is: needs conversion: {merge}\n" in command.messages


def test_a_server_that_is_away_uses_up_no_attempt(watch: Watch, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "ck" / "checkpoint-1")
    settings = ("watch.max_attempts=1", "watch.settle_s=0")
    for launcher, said in (("auto", "does not answer"), ("local", "no Prefect server answers")):
        command = watch(
            "--once", *settings, f"watch.launcher={launcher}", api_url=f"http://127.0.0.1:{free_port()}/api"
        )
        assert command.finish() == 1, command.messages
        assert said in command.messages
        status = status_of(tmp_path, *settings)
        assert status["counts"] == {"waiting": 1}
        assert said in status["checkpoints"][0]["cells"][0]["detail"]
    assert json.loads(watch("--once", *settings).success())["num_done"] == 1


def alerts(folder: Path) -> list[dict[str, Any]]:
    """What is in the ledger of failures."""
    ledger = [json.loads(path.read_text()) for path in (folder / "out" / "alerts").glob("*.json")]
    return [record for record in ledger if record["event"] == "milepost.evaluation.failed"]


def told_texts(api: str, checkpoint: str) -> list[str]:
    """What the server was to tell of failures of a checkpoint."""
    found = ask_api(api, "events/filter", {"filter": {"event": {"name": ["milepost.evaluation.failed"]}}})
    payloads = [event["payload"] for event in found["events"]]
    return [payload["text"] for payload in payloads if payload["checkpoint"] == checkpoint]


def test_what_is_given_up_is_told_once_and_so_is_a_watcher_that_cannot_watch(
    watch: Watch, environment: dict[str, str], api: str, tmp_path: Path
) -> None:
    remove_template(make_checkpoint(tmp_path / "ck" / "checkpoint-1"))
    settings = ("watch.max_attempts=1", "watch.settle_s=0")
    for _ in range(2):
        watch("--once", *settings).finish()
    (alert,) = alerts(tmp_path)
    assert alert["told"]
    assert alert["message"].startswith("given up after 1 attempts: ")
    assert alert["checkpoint"] == str(tmp_path / "ck" / "checkpoint-1")
    (text,) = wait_for(lambda: told_texts(api, alert["checkpoint"]), "event")
    assert re.search(r"^since: the first attempt, \d{4}-\d\d-\d\d \d\d:\d\d UTC$", text, re.MULTILINE)
    words = [str(tmp_path / "config.yaml"), f"cluster.fileroot={tmp_path / 'out'}", str(tmp_path / "no" / "such")]
    for _ in range(2):
        run_command(words, folder=ROOT, environment=environment | {"PREFECT_API_URL": api}, code=RECONCILE)
    told = [alert for alert in alerts(tmp_path) if "there is no such folder" in alert["message"]]
    assert [(alert["checkpoint"], alert["told"]) for alert in told] == [(words[-1], True)]


def test_what_its_run_has_told_is_not_told_again_when_it_is_given_up(watch: Watch, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "ck" / "checkpoint-1")
    settings = ("watch.max_attempts=1", "watch.settle_s=0", "engine.stand_in.load_s=600", "rollout.setup_timeout=0.5")
    assert watch("--once", *settings).finish() == 1
    (alert,) = alerts(tmp_path)
    assert alert["told"]
    assert "was not ready" in alert["message"]


def test_roots_and_configurations_that_cannot_be_are_refused(watch: Watch, tmp_path: Path) -> None:
    def refused(words: str, *arguments: str, command: str = "watch", root: Path = tmp_path / "ck") -> None:
        line = [command, str(tmp_path / "config.yaml"), str(root), f"cluster.fileroot={tmp_path / 'out'}", *arguments]
        done = CliRunner().invoke(app, line)
        assert done.exit_code == 2, done.output
        assert words in done.stderr

    watch("--once").failure(2, "there is no such folder")
    (tmp_path / "file").write_text("")
    refused("this is a file", root=tmp_path / "file")
    refused("there is no such folder", command="status")
    (tmp_path / "ck").mkdir()
    refused("watch.order", "watch.order=best")
    refused("watch.order", "--order", "best")
    refused("evaluator.freq_epochs", "watch.select=frequency")
    refused("no/such/data.jsonl", "valid_dataset.path=no/such/data.jsonl")
    (tmp_path / "out" / "pins").mkdir(parents=True)
    refused("Milepost's own", root=tmp_path / "out" / "pins")
    assert json.loads(watch("--once").success())["num_done"] == 0
