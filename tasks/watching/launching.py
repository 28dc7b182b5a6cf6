"""How an evaluation is run for a watcher: by a process of this machine, or by whatever else implements this."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, cast

from infra.files.atomic import write_text_atomically
from infra.files.log_files import end_or_nothing
from infra.machine.python_code import child_environment
from schemas.config import EvaluationConfig, config_to_yaml
from schemas.errors import LaunchError, SetupError, TransientError

_COMMAND: Final = (
    "import sys; from infra.machine.processes import end_with_parent; end_with_parent(int(sys.argv.pop(1)))\n"
    "from flows.cli import main; main()"
)
_TAIL_BYTES: Final = 2_000

EndCause = Literal["failed", "unwanted", "away", "impossible", "lost"]
"""unwanted: somebody put an end to it, there is no other attempt. away: what it needs is not there, as a server or a
cluster. impossible: nobody can start it where it would run, until the configuration or the cluster is another. lost:
whatever ran it is gone, as after a reboot."""
_AWAY: Final = frozenset(error.__name__ for error in (SetupError, TransientError))


def cause_of(error: str) -> EndCause:
    """Return what an error of this name, which ended an attempt, says of it."""
    if error == LaunchError.__name__:
        return "impossible"
    return "away" if error in _AWAY else "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOrder:
    """One attempt at an evaluation."""

    name: str
    """The same for the same attempt, whoever orders it: evaluation key, weights, series and number of the attempt."""
    config: EvaluationConfig
    """Of this checkpoint."""
    folder: Path
    """Where the attempt's files go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationEnd:
    """How an attempt ended. Whether it was published, the store tells."""

    error: str
    """What it said; empty when it went well."""
    cause: EndCause = "failed"
    """Why it published nothing, if it did not."""


class RunningEvaluation(Protocol):
    """An attempt that was launched."""

    def poll(self) -> EvaluationEnd | None:
        """Return how it ended; None while it runs."""
        ...

    def stop(self) -> bool:
        """Have it end soon, resumable; return whether it will, or outlives its watcher."""
        ...


class EvaluationLauncher(Protocol):
    """What runs evaluations."""

    def launch(self, order: EvaluationOrder) -> RunningEvaluation:
        """Start an attempt; the one of that name that runs already, where it outlives watchers.

        Raises:
            TransientError: it cannot be started now; that is no failure of the evaluation.
            MilepostError: it cannot be started.
        """
        ...


class LocalLauncher:
    """Runs `milepost evaluate` in a process that cannot outlive this one."""

    def __init__(self, require_surroundings: Callable[[], None] = lambda: None) -> None:
        """`require_surroundings` raises TransientError while something is away that every evaluation needs, SetupError
        while it cannot be used.
        """
        self._require_surroundings = require_surroundings

    def launch(self, order: EvaluationOrder) -> "LocalEvaluation":
        """Start the process.

        Raises:
            TransientError: something is away that it needs.
            SetupError: it cannot be started, or would find something that it cannot use.
        """
        self._require_surroundings()
        config_path, log_path = order.folder / "config.yaml", order.folder / "attempt.log"
        write_text_atomically(config_path, config_to_yaml(order.config))
        result_path = order.folder / "attempt.json"
        command = [sys.executable, "-P", "-c", _COMMAND, str(os.getpid()), "evaluate", str(config_path), "--json"]
        try:
            with result_path.open("wb") as out, log_path.open("wb") as log:
                process = subprocess.Popen(
                    command,
                    env=child_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as exc:
            raise SetupError(f"an evaluation cannot be started ({exc}); see whether disk or memory is full") from exc
        return LocalEvaluation(process, result_path, log_path)


class LocalEvaluation:
    """A process that evaluates."""

    def __init__(self, process: "subprocess.Popen[bytes]", result_path: Path, log_path: Path) -> None:
        """`result_path` gets what it prints on stdout, `log_path` the rest."""
        self._process = process
        self._result_path = result_path
        self._log_path = log_path

    def poll(self) -> EvaluationEnd | None:
        """Return how it ended; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return EvaluationEnd(error="") if code == 0 else self._read_end(code)

    def stop(self) -> bool:
        """Ask it to end, as Ctrl-C does: its workers end and its run is resumable."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return True

    def _read_end(self, code: int) -> EvaluationEnd:
        try:
            document: object = json.loads(self._result_path.read_bytes())
            error = cast("dict[str, dict[str, object]]", document)["error"]
            return EvaluationEnd(error=str(error["message"]), cause=cause_of(str(error["type"])))
        except (OSError, ValueError, KeyError, TypeError):
            said = end_or_nothing(self._log_path, _TAIL_BYTES)
            return EvaluationEnd(
                error=f"`milepost evaluate` ended with exit code {code}; the end of {self._log_path}:\n{said}"
            )
