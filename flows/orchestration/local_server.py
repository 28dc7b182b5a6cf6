"""A Prefect server for one command: it starts beside the command and ends with it.

Prefect can start one itself, but that one shares the terminal's Ctrl-C, so that the command can no longer report how it
ended, and it stays behind when the command is killed. This one has a session of its own and ends when the pipe to the
command closes, however the command ends. It asks for a login, listens on the loopback address, and answers to no other
name.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Final, Self

from flows.orchestration.server_access import TELEMETRY_OFF
from infra.machine.python_code import child_environment
from infra.prefect_server.ephemeral_servers import note_own_server
from infra.prefect_server.login import make_login
from schemas.errors import MilepostError, SetupError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction
    from starlette.types import ASGIApp

_HOST: Final = "127.0.0.1"
_NAMES: Final = (_HOST, "localhost")
"""What a Host header may say: a page of another name, which points it at this machine, is refused."""
_START_TIMEOUT_S: Final = 180.0
"""It takes 6-25 s, and longer where other work holds the cores."""
_STOP_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.1
_LOG_TAIL_BYTES: Final = 2_000
_ALWAYS: Final = TELEMETRY_OFF | {
    "PREFECT__SERVER_FINAL": "1",  # no second instance of the application
    "PREFECT_SERVER_API_BASE_PATH": "/api",
    "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": "",  # its own pages need none
}
"""Settings of every server that a command starts, whatever the user's own are."""
_HIDDEN: Final = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT__SERVER_EPHEMERAL": "1",  # as Prefect marks a server of its own
    "PREFECT_PROFILES_PATH": os.devnull,
}
"""Settings of a server that nobody but its command knows: no UI, no schedules, no profile."""
_AUTH: Final = "PREFECT_SERVER_API_AUTH_STRING"


class LocalServer:
    """A server on the loopback address. Entering starts it, `wait_ready` says where it is.

    Without `settings` it is one of this command alone: nothing of the user's settings reaches it but its folder.
    """

    def __init__(
        self,
        home: Path,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        login: str | None = None,
        timeout_s: float = _START_TIMEOUT_S,
    ) -> None:
        """Take what the server needs.

        Args:
            home: Prefect's folder, where its database is.
            port: 0 for a free one.
            settings: Prefect's settings, as environment variables, beside those of the user. None: no others, and
                none of the user's.
            login: What a client has to send; a random one by default.
            timeout_s: Longest time from start to the first answer.
        """
        self._home = home
        self._port = port
        self._settings = settings
        self.login = login or make_login()
        self._timeout_s = timeout_s
        self._lock = ExitStack()
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0

    def __enter__(self) -> Self:
        """Start the process, once no other of this home is starting.

        Raises:
            SetupError: Prefect's folder cannot be written.
        """
        self._take_lock()
        self._started = time.monotonic()
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "flows.orchestration.local_server", str(self._port)],
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self._lock.close()
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if self._log is not None:
            self._log.close()

    def wait_ready(self) -> str:
        """Return the URL of its API once it answers.

        Raises:
            SetupError: it ended, or gave no answer in time.
        """
        process = self._process
        if process is None or process.stdout is None:
            raise SetupError("the Prefect server was not started; enter it first")
        port = process.stdout.readline().decode("ascii", "replace").strip()
        url = f"http://{_HOST}:{port}/api"
        while True:
            if (end := self._read_end()) is not None:
                raise SetupError(end)
            if _answers(f"{url}/health"):
                self._lock.close()
                note_own_server(url)
                return url
            if time.monotonic() - self._started > self._timeout_s:
                raise SetupError(self._describe_failure(f"gave no answer within {self._timeout_s:g} s"))
            time.sleep(_POLL_S)

    def check(self) -> None:
        """Return if the process runs that has answered.

        Raises:
            MilepostError: it has ended, with what it said.
        """
        if (end := self._read_end()) is not None:
            raise MilepostError(end)

    def _environment(self) -> dict[str, str]:
        ours = _ALWAYS | {_AUTH: self.login}
        if self._settings is not None:
            return child_environment(**ours | dict(self._settings))
        inherited = {name: value for name, value in child_environment().items() if not name.startswith("PREFECT_")}
        return inherited | ours | _HIDDEN | {"PREFECT_HOME": str(self._home.absolute())}

    def _take_lock(self) -> None:
        """Wait for other starting servers: two that make the tables of one new database at once both fail."""
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            file = self._lock.enter_context((self._home / "milepost-server.lock").open("wb"))
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as exc:
            self._lock.close()
            raise SetupError(
                f"Prefect's folder {self._home} cannot be written ({exc.strerror}); set PREFECT_HOME to one that can"
            ) from exc

    def _read_end(self) -> str | None:
        code = None if self._process is None else self._process.poll()
        return None if code is None else self._describe_failure(f"ended with exit code {code}")

    def _describe_failure(self, what: str) -> str:
        said = b""
        if self._log is not None:
            self._log.seek(0)
            said = self._log.read()
        tail = said[-_LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
        return (
            f"a Prefect server of this command's own {what}; start one with `prefect server start` and set "
            f"PREFECT_API_URL, or try again. It said: {tail or 'nothing'}"
        )


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy knows this machine's loopback
    try:
        with opener.open(url, timeout=5.0) as reply:
            return reply.status == HTTPStatus.OK
    except (urllib.error.URLError, OSError):
        return False


def end_with_stdin() -> None:
    """Make this process end when the other end of its stdin closes."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()


def _end_with_stdin() -> None:
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 1):  # unbuffered: the interpreter's end would trip over a lock that is held
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_TIMEOUT_S)
    os._exit(1)


def main() -> None:
    """Serve on the port given until told to stop; print the port first."""
    end_with_stdin()
    os.umask(0o077)  # the database holds addresses of alerts, and the key to them
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((_HOST, int(sys.argv[1])))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    if os.environ.get("PREFECT_PROFILES_PATH") == os.devnull:
        os.chdir(os.environ["PREFECT_HOME"])  # Prefect reads settings from files of the folder it is started in
    from uvicorn import Config, Server

    config = Config(_create_app, factory=True, log_level="error", lifespan="on")
    Server(config).run(sockets=[listener])


def _create_app() -> "ASGIApp":
    from prefect.server.api.server import create_app
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    _write_with_lock()
    return TrustedHostMiddleware(create_app(), allowed_hosts=_NAMES, www_redirect=False)


def _write_with_lock() -> None:
    """Let each writing transaction on SQLite take the write lock as it begins, and wait for it.

    Prefect begins most of them as readers. Where another one writes before the first write of such a transaction,
    SQLite ends it at once, without waiting, and the server answers 503.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    def begin_immediate(
        self: AioSqliteConfiguration, session: "AsyncSession", **_: bool
    ) -> "AbstractAsyncContextManager[AsyncSessionTransaction]":
        return begin(self, session, with_for_update=True)

    setattr(AioSqliteConfiguration, begin.__name__, begin_immediate)


if __name__ == "__main__":
    main()
