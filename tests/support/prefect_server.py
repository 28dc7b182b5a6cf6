"""`milepost server` as a user runs it, and what tests ask of it."""

import base64
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import psutil
import yaml

from infra.prefect_server.login import read_login
from tests.support.command_server import run_command
from tests.support.evaluation_commands import SUMS

ROOT = Path(__file__).resolve().parents[2]
MILEPOST = (sys.executable, "-c", "from flows.cli import main; main()")
PATIENCE_S = 600.0
"""A run takes 15 s on a quiet machine, minutes on a busy one."""
CONFIG: dict[str, Any] = {
    "experiment_name": "served",
    "actor": {"path": str(ROOT / ".demo" / "smollm2-135m-instruct")},
    "valid_dataset": {"path": str(SUMS), "limit": 24},
    "gconfig": {"n_samples": 1, "max_new_tokens": 32},
    "engine": {"stand_in": {}},
}
"""Seconds of work, without a model."""
BUSY_S = 300.0
"""How long a server may be too busy to answer before that is a failure."""
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], Any], what: str, *, timeout_s: float = PATIENCE_S) -> Any:
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"no {what} within {timeout_s:g} s"
        time.sleep(0.5)  # a question to a server takes 20 ms of a processor
    return found


def ask_api(api: str, path: str, body: Any = None, *, method: str = "POST", login: str | None = None) -> Any:
    """Ask a server's API; again where its database is busy, which it says by 503, as Prefect's own client does."""
    data = None if method == "GET" else json.dumps({} if body is None else body).encode()
    headers = {"Content-Type": "application/json"}
    if login is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    request = urllib.request.Request(f"{api}/{path}", data, headers, method=method)
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:  # SQLite itself waits 60 s for a lock
                text = reply.read()
            break
        except urllib.error.HTTPError as exc:
            if exc.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                raise
            time.sleep(1.0)
    return json.loads(text) if text else None


def artifact_kind(key: str) -> str:
    """Return what an artifact shows, from its key."""
    kind = re.match(r"(summary|metrics|drift|consistency|regression|validation-set|replica-\d+)-", key)
    assert kind, key
    return kind[1]


class PrefectServer(NamedTuple):
    """A bare Prefect server, without its UI: the application that `prefect server start` runs."""

    api: str
    process: subprocess.Popen[bytes]

    def end(self) -> None:
        """End it and what it started."""
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def prefect_server(environment: Mapping[str, str], folder: Path, *, port: int | None = None) -> Iterator[PrefectServer]:
    """Have one that answers while the block runs; its log lies in `folder`."""
    port = free_port() if port is None else port
    api, log_path = f"http://127.0.0.1:{port}/api", folder / "log.txt"
    application = ["--factory", "prefect.server.api.server:create_app", "--host", "127.0.0.1", "--port", str(port)]
    variables = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_FINAL": "1", "PREFECT_SERVER_API_BASE_PATH": "/api"}
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", *application],
            env={**environment, **variables},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    server = PrefectServer(api, process)
    try:
        wait_for(lambda: process.poll() is not None or _is_up(api), "Prefect server")
        assert process.poll() is None, log_path.read_text()
        yield server
    finally:
        if process.poll() is None:
            server.end()


def fill_home(home: Path) -> None:
    """Give a PREFECT_HOME an empty database. A server that makes its own takes 7 s more of a processor to start."""
    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    prepared = cache / f"prefect-home-{version('prefect')}"
    with (cache / "prefect-home.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not prepared.is_dir():
            _prepare_home(prepared)
    shutil.copytree(prepared, home, dirs_exist_ok=True)


def _prepare_home(home: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent) as name:
        folder = Path(name)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        variables = {"PREFECT_HOME": str(folder / "home"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        with prefect_server(inherited | variables, folder):
            pass
        database = sqlite3.connect(folder / "home" / "prefect.db")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
        for path in (folder / "home").iterdir():
            path.chmod(0o600)
        (folder / "home").rename(home)


@dataclass(frozen=True)
class Served:
    """A running `milepost server`, with what was deployed to it."""

    process: subprocess.Popen[bytes]
    api: str
    folder: Path
    environment: Mapping[str, str]

    @property
    def page(self) -> str:
        """Where its UI is."""
        return self.api.removesuffix("/api")

    @property
    def login(self) -> str | None:
        """What it asks of a client; None for a server without a login."""
        return read_login(Path(self.environment["PREFECT_HOME"]))

    @property
    def log(self) -> str:
        """What it has said."""
        return (self.folder / "server.log").read_text("utf-8", "replace")

    def milepost(self, *arguments: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command beside the server; again, as its message says, where the database was busy for a minute."""
        for patience in reversed(range(3)):
            done = run_command(arguments, folder=self.folder, environment={**self.environment, **(variables or {})})
            if not patience or not done.returncode or "503 Service Unavailable" not in done.stdout + done.stderr:
                break
        return done

    def deploy(self, config: Mapping[str, Any], variables: Mapping[str, str] | None = None) -> list[dict[str, str]]:
        """Deploy a configuration; return what became of each thing."""
        (self.folder / "eval.yaml").write_text(yaml.safe_dump(dict(config)), "utf-8")
        done = self.milepost("deploy", "eval.yaml", "--json", variables=variables)
        assert done.returncode == 0, done.stderr
        found: list[dict[str, str]] = json.loads(done.stdout)["registrations"]
        return found

    def ask(self, path: str, body: Any = None, *, method: str = "POST") -> Any:
        """Ask its API."""
        return ask_api(self.api, path, body, method=method, login=self.login)

    def refusal(self, path: str, body: Mapping[str, Any]) -> tuple[int, str]:
        """Ask for something that is refused; return status and reason."""
        try:
            self.ask(path, body)
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()
        raise AssertionError(f"{path} was not refused")

    def deployment(self, name: str) -> dict[str, Any]:
        """A deployment of the flow `evaluate`."""
        found: dict[str, Any] = self.ask(f"deployments/name/evaluate/{name}", method="GET")
        return found

    def start(self, name: str, **parameters: Any) -> str:
        """Start a run of a deployment; return its id."""
        deployment = self.deployment(name)
        run = self.ask(f"deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
        return str(run["id"])

    def runs(self, name: str) -> list[dict[str, Any]]:
        """The runs of a deployment, the oldest first."""
        query = {"deployments": {"id": {"any_": [self.deployment(name)["id"]]}}, "sort": "EXPECTED_START_TIME_ASC"}
        found: list[dict[str, Any]] = self.ask("flow_runs/filter", query)
        return found

    def state(self, run: str) -> dict[str, Any]:
        """The state of a run."""
        found: dict[str, Any] = self.ask(f"flow_runs/{run}", method="GET")["state"]
        return found

    def finish(self, run: str) -> str:
        """Wait for the end of a run; return the type of its state."""
        wait_for(lambda: self.state(run)["type"] in FINAL, f"end of run {run}; the server said:\n{self.log[-3000:]}")
        return str(self.state(run)["type"])

    def logs(self, run: str) -> list[dict[str, Any]]:
        """The log lines of a run."""
        found: list[dict[str, Any]] = self.ask("logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200})
        return found

    def artifacts(self, run: str) -> dict[str, dict[str, Any]]:
        """The artifacts of a run by kind: a key is the kind, the experiment and the dataset."""
        found = self.ask("artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})
        return {artifact_kind(artifact["key"]): artifact for artifact in found if artifact["key"]}

    def workers(self) -> list[psutil.Process]:
        """The processes that generate for its runs."""
        found: list[psutil.Process] = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if "tasks.inference.worker" in process.cmdline():
                    found.append(process)
            except psutil.Error:
                continue
        return found


@contextmanager
def serve(
    folder: Path, *, port: int | None = None, variables: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Served]:
    """Run `milepost server` in a folder until the block ends, then end it as Ctrl-C does.

    `variables`: what its environment has beside the usual.
    """
    port = free_port() if port is None else port
    api = f"http://127.0.0.1:{port}/api"
    home = folder / "prefect"
    if not home.exists() and "PREFECT_SERVER_DATABASE_CONNECTION_URL" not in variables:
        fill_home(home)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = inherited | {
        "PREFECT_HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
    }
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*MILEPOST, "server", "--port", str(port)],
            cwd=folder,
            env={**environment, **variables},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    served = Served(process, api, folder, environment | {"PREFECT_API_URL": api})
    try:
        wait_for(lambda: process.poll() is not None or "milepost deploy" in served.log, "server")
        assert process.poll() is None, served.log
        yield served
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(180)
            finally:
                process.kill()


def _is_up(api: str) -> bool:
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
