"""A Prefect server and a process worker for one person, in the foreground: both end with the command.

A team's server has a database of its own and runs as a service; docs/prefect.md tells how.
"""

import fcntl
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import typer

from flows.interruption import Interrupted, interruptible
from flows.orchestration.local_server import LocalServer, end_with_stdin
from flows.orchestration.server_access import TELEMETRY_OFF
from infra.machine.processes import end_processes
from infra.machine.python_code import child_environment
from infra.prefect_server.login import keep_login, read_login
from schemas.errors import MilepostError, SetupError, TransientError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_CHECK_S: Final = 0.5
_RUNS_END_S: Final = 20.0
"""Seconds that running evaluations have to stop their workers and say so to the server."""
_WORKER_END_S: Final = 5.0
_WORKER_NAME: Final = "milepost-server"
"""The same at each start, by which a worker's leftovers are told from what another worker of the pool is at."""
_QUERY_S: Final = "1"
"""Seconds between two looks of the worker for runs. Prefect's own 10 are half of what a start takes."""


def serve(port: int, pool: str, *, when_ready: Callable[[], None]) -> int:
    """Run server and worker until a signal, and return the exit code: 0 for Ctrl-C, else 128 + signal.

    `when_ready` is called once the server answers, before anything is printed.

    Raises:
        SetupError: the port is taken, another `milepost server` uses the same database, or the server does not start.
        MilepostError: server or worker ended by itself, or the server does not answer.
    """
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.settings import PREFECT_HOME, PREFECT_SERVER_API_AUTH_STRING

    settings = {
        "PREFECT_SERVER_UI_API_URL": "/api",  # whatever tunnel the browser uses
        "PREFECT_SERVER_UI_SERVE_BASE": "/",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",  # V2 loads parts of itself from elsewhere
        # on disk, as places that a limit has given away are: in memory, a restart would forget who is to give them back
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    }
    home = PREFECT_HOME.value()
    api_url = f"http://127.0.0.1:{port}/api"
    _check_port(port)
    try:
        with interruptible(), _only_one(home):
            login = keep_login(home, api_url, PREFECT_SERVER_API_AUTH_STRING.value())
            _hide_database(home)
            with (
                LocalServer(home, port=port, settings=settings, login=login) as server,
                SyncPrefectClient(api_url, auth_string=login) as client,
            ):
                server.wait_ready()
                when_ready()
                _print_addresses(api_url, login)
                while True:
                    _work(server, client, pool)
    except Interrupted as exc:
        return 0 if exc.number == signal.SIGINT else exc.exit_code


def print_login() -> None:
    """Print what a browser has to send to the server of this home.

    Raises:
        SetupError: there has been no server yet.
    """
    from prefect.settings import PREFECT_HOME

    home = PREFECT_HOME.value()
    login = read_login(home)
    if login is None:
        raise SetupError(f"no login in {home}: `milepost server` makes it at its first start")
    typer.echo(login)


def _print_addresses(api_url: str, login: str) -> None:
    typer.echo(f"UI       {api_url.removesuffix('/api')}")
    # a log may have more readers than a terminal
    typer.echo(f"login    {login if sys.stdout.isatty() else 'what `milepost server --login` prints'}")
    if home := os.environ.get("PREFECT_HOME"):
        typer.echo(f"in other shells: export PREFECT_HOME={shlex.quote(home)}")
    typer.echo(f"in other shells: export PREFECT_API_URL={api_url}\nthen:    milepost deploy")


def _hide_database(home: Path) -> None:
    """Keep other users from a database that an earlier version made for all to read."""
    for path in home.glob("prefect.db*"):
        path.chmod(0o600)


def _work(server: LocalServer, client: "SyncPrefectClient", pool: str) -> None:
    """End what earlier workers have left, then have a worker until it is killed, as by the kernel for want of memory.

    Raises:
        MilepostError: it or the server ended by itself.
        TransientError: the server does not answer.
    """
    from flows.orchestration.orphaned_runs import end_leftover_runs
    from flows.orchestration.work_pools import ensure_closed_pool
    from tasks.alerts.task import PREFECT_FAILURES

    try:
        ensure_closed_pool(client, pool)
        num_ended = end_leftover_runs(client, pool, _WORKER_NAME, grace_s=_RUNS_END_S)
    except PREFECT_FAILURES as exc:
        raise TransientError(f"the Prefect server does not answer ({exc}); start again") from exc
    if num_ended:
        typer.echo(f"{num_ended} runs whose worker was gone have been ended; what they had finished is kept", err=True)
    with _worker(str(client.api_url).rstrip("/"), server.login, pool) as worker:
        while (code := worker.poll()) is None:
            server.check()
            time.sleep(_CHECK_S)
    if code >= 0:
        raise MilepostError(f"the worker ended with exit code {code}; its last lines are above")
    typer.echo(f"the worker was killed by {signal.Signals(-code).name}; another one is started", err=True)


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as exc:
            raise SetupError(
                f"port {port} of the loopback address cannot be used ({exc.strerror}); if it is a Prefect server, "
                f"export PREFECT_API_URL=http://127.0.0.1:{port}/api and go on, else name another with --port"
            ) from exc


@contextmanager
def _only_one(home: Path) -> Generator[None]:
    """Hold Prefect's folder while the block runs: two servers on one SQLite file lock each other out."""
    path = home / "milepost-server.one"
    with ExitStack() as held:
        try:
            home.mkdir(parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(path.open("a+b")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise SetupError(
                f"another `milepost server` uses the database in {home}; use it, or set PREFECT_HOME to a folder of "
                "its own"
            ) from exc
        except OSError as exc:
            raise SetupError(
                f"{path} cannot be written ({exc.strerror}); set PREFECT_HOME to a folder that can"
            ) from exc
        yield


@contextmanager
def _worker(api_url: str, login: str, pool: str) -> Generator[subprocess.Popen[bytes]]:
    """Run a worker while the block does; afterwards end its runs, then itself."""
    command = [sys.executable, "-P", "-m", "flows.orchestration.server", "worker", "start"]
    settings = {
        "PREFECT_WORKER_QUERY_SECONDS": _QUERY_S,
        "PREFECT_API_URL": api_url,
        "PREFECT_API_AUTH_STRING": login,
    }
    process = subprocess.Popen(
        [*command, "--pool", pool, "--type", "process", "--name", _WORKER_NAME],
        env=child_environment(**TELEMETRY_OFF, **settings),
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end_with_children(process)


def _end_with_children(process: subprocess.Popen[bytes]) -> None:
    """End the worker's runs while the server can still be told so, then the worker and whatever is left of both."""
    if process.poll() is None:
        worker = psutil.Process(process.pid)
        everything = [worker, *worker.children(recursive=True)]
        end_processes(worker.children(), grace_s=_RUNS_END_S)
        end_processes(everything, grace_s=_WORKER_END_S)
    process.wait()


if __name__ == "__main__":
    end_with_stdin()
    from prefect.cli import app

    app()
