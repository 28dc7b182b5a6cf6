"""How long after a trainer announces a checkpoint its evaluation has the first token, and where the time goes.

    .venv/bin/python benchmarks/landing.py [--rounds 2] [--launchers local deployment] [--threads N]

Runs `milepost server` and, per measurement, `milepost watch` over an empty folder with a store that knows nothing; then
a checkpoint appears there, announced as a trainer does. `engine` is a program that calls the same vLLM on the same
token ids, from its start to its first token. Prints the medians of each stage, and what the way of a checkpoint takes
over that (target: 5 s).
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.end_to_end import Job, Setting, prepare, run_engine  # noqa: E402 - the repository need not be installed
from flows.evaluator import CheckpointAnnouncer  # noqa: E402
from infra.fileroot.run_directory import list_runs  # noqa: E402
from infra.prefect_server.http_api import find_authorization  # noqa: E402
from schemas.watch import EvaluationRecord, LandedCheckpoint  # noqa: E402
from tasks.inference.exchange.worker_files import read_result  # noqa: E402

TARGET_S: Final = 5.0
COMMAND: Final = (sys.executable, "-c", "from flows.cli import main; main()")
JOB: Final = Job("16 sums, 32 new tokens", 16, 32)
DATA: Final = "reasoning_gym:chain_sum?size=16&seed=1"
_PATIENCE_S: Final = 180.0
_IDLE_S: Final = 3.0
"""Seconds that a watcher has been idle for when the checkpoint lands."""


class Landing(NamedTuple):
    """Unix times of one checkpoint's way."""

    announced: float
    seen: float
    ordered: float
    created: float
    started: float
    worker: float
    ready: float
    first_token: float


STAGES: Final = (
    ("announced, seen whole", "announced", "seen"),
    ("seen, its weights read and evaluation ordered", "seen", "ordered"),
    ("ordered, flow run created", "ordered", "created"),
    ("created, flow run started", "created", "started"),
    ("flow run started, engine's process started", "started", "worker"),
    ("engine's process started, engine ready", "worker", "ready"),
    ("engine ready, first token", "ready", "first_token"),
    ("announced, first token", "announced", "first_token"),
)


class Bench(NamedTuple):
    """What all measurements share."""

    api: str
    environment: dict[str, str]
    setting: Setting
    checkpoint: Path


@contextmanager
def serving(folder: Path) -> Generator[dict[str, str]]:
    """Run `milepost server` while the block does; yield the environment of commands that talk to it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    settings = {"PREFECT_HOME": str(folder / "prefect"), "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    environment = os.environ | settings
    log_path = folder / "server.log"
    with log_path.open("wb") as log:
        command = [*COMMAND, "server", "--port", str(port)]
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or "started!" in log_path.read_text(), "a server")
        if process.poll() is not None:
            raise SystemExit(log_path.read_text())
        yield environment | {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until a function returns something true."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"no {what} within {_PATIENCE_S:g} s")
        time.sleep(0.2)


def measure(bench: Bench, launcher: str, folder: Path) -> Landing:
    """Have one checkpoint land under a watcher of its own."""
    root, fileroot = folder / "checkpoints", folder / "out"
    root.mkdir()
    watch = {"launcher": launcher}
    config = bench.setting.config | {"cluster": {"fileroot": str(fileroot)}, "watch": watch}
    (folder / "config.yaml").write_text(json.dumps(config))
    with (folder / "log").open("wb") as log:
        command = [*COMMAND, "watch", str(folder / "config.yaml"), str(root)]
        watcher = subprocess.Popen(command, cwd=folder, env=bench.environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: list(fileroot.glob("watch/*/config.yaml")), "watcher")
        time.sleep(_IDLE_S)
        shutil.copytree(bench.checkpoint, root / "checkpoint-1")
        announcer = CheckpointAnnouncer(root)
        announced = time.time()
        announcer.announce(root / "checkpoint-1", global_step=1)
        wait_until(lambda: record(fileroot) is not None or watcher.poll() is not None, f"end; see {folder / 'log'}")
        done = record(fileroot)
        if done is None or done.run_id is None or done.started_at is None:
            raise SystemExit((folder / "log").read_text())
        return follow(bench.api, fileroot, announced, done.started_at)
    finally:
        watcher.send_signal(signal.SIGINT)
        watcher.wait()


def record(fileroot: Path) -> EvaluationRecord | None:
    """Return how the evaluation ended; None before it has."""
    for path in fileroot.glob("watch/*/results/*/record.json"):
        found = EvaluationRecord.model_validate_json(path.read_bytes())
        return found if found.is_settled else None
    return None


def follow(api: str, fileroot: Path, announced: float, ordered: datetime) -> Landing:
    """Return the times that files and server tell."""
    (landed_path,) = fileroot.glob("watch/*/checkpoints/*/landed.json")
    landed = LandedCheckpoint.model_validate_json(landed_path.read_bytes())
    (run,) = list_runs(fileroot)
    result = read_result(run.replica_dir(1, 0))
    if result is None or result.started_at is None:
        raise SystemExit(f"{run.path} has no result")
    flow_run = newest_flow_run(api)
    return Landing(
        announced=announced,
        seen=landed.landed_at.timestamp(),
        ordered=ordered.timestamp(),
        created=datetime.fromisoformat(flow_run["created"]).timestamp(),
        started=datetime.fromisoformat(flow_run["start_time"]).timestamp(),
        worker=result.started_at,
        ready=result.started_at + (result.startup_s or 0.0),
        first_token=result.started_at + (result.first_token_s or 0.0),
    )


def newest_flow_run(api: str) -> dict[str, str]:
    """Return the flow run of `evaluate` that was started last."""
    login = find_authorization(api)
    body = json.dumps({"flows": {"name": {"any_": ["evaluate"]}}, "sort": "START_TIME_DESC", "limit": 1}).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": login} if login else {})
    request = urllib.request.Request(f"{api}/flow_runs/filter", body, headers)
    with urllib.request.urlopen(request, timeout=30) as reply:
        (found,) = json.loads(reply.read())
    return found


def report(landings: dict[str, list[Landing]], engine_s: float) -> bool:
    """Print the medians; return whether the target is met."""
    print(f"\n{'seconds, medians':<48}" + "".join(f"{name:>12}" for name in landings))
    for title, start, end in STAGES:
        cells = [f"{median_between(each, start, end):>12.1f}" for each in landings.values()]
        print(f"{title:<48}" + "".join(cells))
    over = {name: median_between(each, "announced", "first_token") - engine_s for name, each in landings.items()}
    print(f"{'the engine alone, start to first token':<48}" + f"{engine_s:>12.1f}" * len(over))
    print(f"{'over it (target +5 s)':<48}" + "".join(f"{value:>+12.1f}" for value in over.values()))
    return all(value <= TARGET_S for value in over.values())


def median_between(landings: list[Landing], start: str, end: str) -> float:
    """Return the median of the seconds between two times."""
    return statistics.median(getattr(each, end) - getattr(each, start) for each in landings)


def main() -> int:
    """Measure; exit code 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--launchers", nargs="+", choices=["local", "deployment"], default=["local", "deployment"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--checkpoint", type=Path, default=ROOT / ".demo" / "smollm2-135m-instruct")
    parser.add_argument("--engine-python", type=Path, default=ROOT / ".venv-engine" / "bin" / "python")
    parser.set_defaults(data=DATA, dtype="float32", batch_size=JOB.num_prompts)
    options = parser.parse_args()
    options.checkpoint = options.checkpoint.resolve()
    setting = prepare(JOB, options)
    landings: dict[str, list[Landing]] = {name: [] for name in options.launchers}
    engine: list[float] = []
    with tempfile.TemporaryDirectory() as home, serving(Path(home)) as environment:
        os.environ["PREFECT_HOME"] = environment["PREFECT_HOME"]  # where the server's login is
        bench = Bench(environment["PREFECT_API_URL"], environment, setting, options.checkpoint)
        subprocess.run([*COMMAND, "deploy"], cwd=home, env=environment, check=True, stdout=subprocess.DEVNULL)
        for number in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder:
                engine.append(run_engine(setting, Path(folder), is_plain=False).first_token_s)
            print(f"round {number + 1}: engine alone {engine[-1]:.1f} s; load {os.getloadavg()[0]:.1f}", flush=True)
            for launcher in options.launchers:
                with tempfile.TemporaryDirectory() as folder:
                    landings[launcher].append(measure(bench, launcher, Path(folder)))
                total_s = landings[launcher][-1].first_token - landings[launcher][-1].announced
                print(f"round {number + 1}: {launcher} {total_s:.1f} s; load {os.getloadavg()[0]:.1f}", flush=True)
    return 0 if report(landings, statistics.median(engine)) else 1


if __name__ == "__main__":
    sys.exit(main())
