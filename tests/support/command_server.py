"""Starts `milepost` commands in forks of one process that has imported them: 3 s less of a processor for each.

A command is a process of its own with its own environment, folder, process group, signals and exit code. Only the
imports are shared. Run as a program, this module is the server:

    python -P -m tests.support.command_server FD

It reads one request per message from the socket FD: a JSON document, with the file descriptors of stdout and stderr and
of a socket for the answer. The answer is the process id, and later the exit status.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
_MESSAGE_BYTES = 1 << 20
_MODULES = (
    *(f"flows.{name}" for name in ("cli", "preflight", "evaluate", "regrade", "watch")),
    "flows.orchestration.registration",
    # what commands import when they need it
    *("fastapi.encoders", "prefect.task_engine", "pyarrow.acero", "scipy.special", "tokenizers", "jinja2"),
    *("graphviz", "rich.markdown"),
)
_LOGGING = "PREFECT_LOGGING_"
"""Prefect reads settings with this prefix when it is imported, so a command with its own is started without a fork."""


_cpu_s_of_ended: list[float] = []


def cpu_s_of_ended_commands() -> float:
    """Processor time of all forked commands that have ended, and of those that they have waited for."""
    return sum(_cpu_s_of_ended)


class ForkedCommand:
    """A running command: what tests use of `subprocess.Popen`."""

    def __init__(self, answers: socket.socket) -> None:
        """`answers`: from the command's parent."""
        self._answers = answers
        self.pid = int(self._read())
        self.returncode: int | None = None

    def _read(self) -> str:
        text = b""
        while not text.endswith(b"\n"):
            part = self._answers.recv(64)
            if not part:
                raise RuntimeError("the command server has ended")
            text += part
        return text.decode()

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
            code, cpu_s = self._read().split()
            self.returncode = int(code)
            _cpu_s_of_ended.append(float(cpu_s))
            self._answers.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code."""
        if self.returncode is None and not select.select([self._answers], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("milepost", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | ForkedCommand


def start_command(
    arguments: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    cores: Sequence[int],
    output: tuple[IO[bytes], IO[bytes]],
    is_fresh: bool = False,
    code: str = "",
) -> Process:
    """Start `milepost` with these arguments in a process group of its own.

    `output`: files for stdout and stderr. `is_fresh`: the process imports everything itself, as a user's does. `code`:
    what is run in place of `milepost`, as `python -c` does.
    """
    if is_fresh or any(name.startswith(_LOGGING) for name in environment):
        start = f"import os; os.sched_setaffinity(0, {list(cores)}); from flows.cli import main; main()"
        command = [sys.executable, "-c", start, *arguments]
        out, err = output
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=err, process_group=0)
    request = {
        "arguments": list(arguments),
        "folder": str(folder),
        "environment": dict(environment),
        "cores": list(cores),
        "code": code,
    }
    ours, theirs = socket.socketpair()
    with theirs:
        files = [*(file.fileno() for file in output), theirs.fileno()]
        socket.send_fds(_server(), [json.dumps(request).encode()], files)
    return ForkedCommand(ours)


def run_command(
    arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], timeout_s: float = 600.0, code: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `milepost`, or `code`, until it ends, as `subprocess.run` does."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        cores = sorted(os.sched_getaffinity(0))
        process = start_command(
            arguments, folder=folder, environment=environment, cores=cores, output=(out, err), code=code
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read().decode(), err.read().decode())


@cache
def _server() -> socket.socket:
    """The connection to this process's server, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for each in (ours, theirs):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.command_server", str(theirs.fileno())],
            cwd=ROOT,
            env=inherited | {"CUDA_VISIBLE_DEVICES": ""},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _import_commands() -> None:
    from flows.commands.errors_and_options import set_prefect_defaults

    set_prefect_defaults()
    for name in _MODULES:
        import_module(name)


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request until the other end is closed. Returns None then, and the request in each new command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how the parents of commands end
    while True:
        message, files, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, 3)
        if not message:
            return None
        if os.fork() == 0:
            requests.close()
            _fork_command(files)
            return dict(json.loads(message))
        for file in files:
            os.close(file)


def _fork_command(files: Sequence[int]) -> None:
    """Return in a new process, whose parent says its process id and, when it has ended, its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *output, answers = files
    command = os.fork()
    if command:
        for file in output:
            os.close(file)
        os.write(answers, f"{command}\n".encode())
        _, status, usage = os.wait4(command, 0)
        with suppress(OSError):  # whoever started it has ended
            cpu_s = usage.ru_utime + usage.ru_stime
            os.write(answers, f"{os.waitstatus_to_exitcode(status)} {cpu_s}\n".encode())
        os._exit(0)
    os.setpgid(0, 0)
    for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), *output)):
        os.dup2(source, target)
        os.close(source)
    os.close(answers)


def _become_command(request: Mapping[str, Any]) -> None:
    """Take over what a process of its own would have been started with."""
    from prefect.context import refresh_global_settings_context

    from flows.commands.errors_and_options import set_prefect_defaults

    os.sched_setaffinity(0, request["cores"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = ["milepost", *request["arguments"]]
    sys.path[:1] = ["", str(ROOT)]
    set_prefect_defaults()
    if "watch" in request["arguments"]:  # as the command itself does before it imports Prefect
        os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")
    refresh_global_settings_context()


if __name__ == "__main__":
    _import_commands()
    if (wanted := _serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        from flows.cli import main

        _become_command(wanted)
        if wanted["code"]:
            exec(compile(wanted["code"], "<test>", "exec"), {"__name__": "__main__"})
        else:
            main()
