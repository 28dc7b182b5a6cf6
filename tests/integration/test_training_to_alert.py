"""From training to an alert: `train_tiny`, a watcher, a server and a worker, while each of them is killed."""

import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.fileroot.run_directory import list_runs
from infra.store import open_store
from infra.trainer.announcements import read_announcements
from tests.support.alert_sink import Sink
from tests.support.engine_environment import ENGINE_PYTHON, ROOT, engine_process_environment
from tests.support.evaluation_commands import SUMS, ended
from tests.support.prefect_server import MILEPOST, Served, free_port, serve, wait_for
from tests.support.watch_status import watch_status

pytestmark = [pytest.mark.needs_prefect, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

NUM_CHECKPOINTS = 4
NUM_ITEMS = 24
QUIET_S = 4.0
"""Time in which a message that must not come would have come: they take about a second."""
CONFIG: dict[str, Any] = {
    "experiment_name": "train-tiny",
    "actor": {"path": "checkpoint"},
    # seconds of generation, so that whatever is killed is killed in the middle of it
    "engine": {"stand_in": {"step_s": 0.2}},
    "rollout": {"max_concurrent_rollouts": 6},
    "valid_dataset": {"path": str(SUMS), "limit": NUM_ITEMS, "prompt_suffix": ""},
    # most of its answers are longer, which makes every run degenerate
    "gconfig": {"max_new_tokens": 8},
    "alerts": {"webhook": {"secret": "env:HOOK"}, "on": ["degenerate"]},
    "watch": {"launcher": "deployment", "settle_s": 1, "poll_s": 1, "retry_after_s": 0},
}


class Team:
    """The trainer and the watcher of one folder; what they say lies beside it."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds `eval.yaml` and gets the checkpoints in `tiny`."""
        self._folder = folder
        self._started: list[psutil.Popen] = []
        self.root = folder / "tiny"

    def train(self) -> psutil.Popen:
        """Start to train, for one checkpoint per hundred steps."""
        script, steps = str(ROOT / "examples" / "train_tiny.py"), str(100 * NUM_CHECKPOINTS)
        return self._start(
            str(ENGINE_PYTHON), script, str(self.root), "--steps", steps, environment=engine_process_environment()
        )

    def watch(self, server: Served) -> psutil.Popen:
        """Start a watcher."""
        return self._start(*MILEPOST, "watch", "eval.yaml", str(self.root), environment=dict(server.environment))

    def end(self) -> None:
        """Kill whatever still runs."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _start(self, *command: str, environment: dict[str, str]) -> psutil.Popen:
        with (self._folder / f"process-{len(self._started)}.log").open("wb") as log:
            self._started.append(psutil.Popen(command, cwd=self._folder, env=environment, stdout=log, stderr=log))
        return self._started[-1]


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    """Nobody works for it yet."""
    team = Team(tmp_path)
    yield team
    team.end()


def status(server: Served, root: Path) -> dict[str, Any]:
    """What `milepost status` tells."""
    return watch_status(server.folder / "eval.yaml", root)


def new_worker(server: Served, *before: psutil.Process) -> psutil.Process:
    """Wait for an inference worker that is none of those."""
    found: list[psutil.Process] = wait_for(
        lambda: [worker for worker in server.workers() if worker not in before],
        f"inference worker; the server said:\n{server.log[-3000:]}",
    )
    return found[0]


def part(server: Served, words: str) -> psutil.Process:
    """The process of `milepost server` whose command holds these words."""
    parts = psutil.Process(server.process.pid).children()
    return next(one for one in parts if words in " ".join(one.cmdline()))


def half_a_checkpoint(root: Path, name: str) -> Path:
    """A checkpoint whose trainer died while it wrote the weights."""
    whole = next(root.glob("checkpoint-*00"))
    half = shutil.copytree(whole, root / f"{name}.tmp")
    weights = half / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return half.rename(root / name)


def last_look(fileroot: Path) -> int:
    """When the watcher began to look; it shows its life then."""
    return max((path.stat().st_mtime_ns for path in fileroot.glob("watch/*/config.yaml")), default=0)


def test_each_checkpoint_is_evaluated_and_their_fault_told_once_whatever_is_killed(
    engine_python: Path, team: Team, sink: Sink, tmp_path: Path
) -> None:
    fileroot, port = tmp_path / "out", free_port()
    with serve(tmp_path, port=port) as server:
        server.deploy(CONFIG | {"cluster": {"fileroot": str(fileroot)}}, {"HOOK": f"http://{sink.place}/hook"})
        watcher, trainer = team.watch(server), team.train()
        new_worker(server)
        half_a_checkpoint(team.root, "checkpoint-50")
        deleted = half_a_checkpoint(team.root, "checkpoint-60")
        wait_for(lambda: status(server, team.root)["counts"].get("writing") == 2, "half-written checkpoints")
        for _ in range(2):  # the watcher has seen them too: a look that began before is over once another begins
            before = last_look(fileroot)
            wait_for(lambda before=before: last_look(fileroot) != before, "look of the watcher")
        shutil.rmtree(deleted)
        wait_for(lambda: status(server, team.root)["counts"].get("vanished") == 1, "note of the one that is gone")
        first = new_worker(server)
        first.kill()  # its run starts another one
        second = new_worker(server, first)
        watcher.kill()
        watcher.wait()
        watcher = team.watch(server)
        third = new_worker(server, first, second)
        prefect_worker = part(server, "worker start")
        runs = prefect_worker.children(recursive=True)
        prefect_worker.kill()
        assert ended([prefect_worker, *runs], timeout_s=240.0)
        new_worker(server, first, second, third)
        part(server, "flows.orchestration.local_server").kill()
        assert server.process.wait(240) == 1, server.log
    with serve(tmp_path, port=port) as server:
        assert trainer.wait(300) == 0
        wait_for(
            lambda: set(status(server, team.root)["counts"]) <= {"done", "writing", "vanished"},
            "end of all evaluations",
        )
        wait_for(lambda: sink.bodies("/hook"), "alert")
        time.sleep(QUIET_S)
        found = status(server, team.root)
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(90) == 130

    assert found["counts"] == {"done": NUM_CHECKPOINTS, "writing": 1, "vanished": 1}
    runs_table = open_store(fileroot).table("runs").to_table().to_pylist()
    announced = {one.path for one in read_announcements(team.root)}
    assert {run["checkpoint"] for run in runs_table} == announced
    assert set(Counter(run["weight_digest"] for run in runs_table).values()) == {1}
    assert len(runs_table) == len(list(list_runs(fileroot))) == NUM_CHECKPOINTS  # what was killed went on
    samples = open_store(fileroot).table("samples").to_table(columns=["run_id", "item_id", "score"]).to_pylist()
    assert len({(sample["run_id"], sample["item_id"]) for sample in samples}) == len(samples)
    assert len(samples) == NUM_CHECKPOINTS * NUM_ITEMS
    # all of them are degenerate, which is one cause
    (alert,) = [json.loads(body) for body in sink.bodies("/hook")]
    first = min(runs_table, key=lambda run: run["finished_at"])
    assert alert["title"].startswith("Milepost: Degenerate generation: ")
    assert alert["title"].endswith(f"/{Path(first['checkpoint']).name}")
    lines = alert["message"].splitlines()
    assert f"checkpoint: {first['checkpoint']} (step {first['global_step']})" in lines
    assert f"since: step {first['global_step']}, run {first['run_id']}" in lines
    assert list(fileroot.glob("watch/*/checkpoints/*/model")) == []
