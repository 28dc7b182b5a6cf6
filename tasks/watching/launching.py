"""How an evaluation is run for a watcher: by a process of this machine, or by whatever else implements this."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

from infra.atomic import write_text_atomically
from infra.log_files import read_end
from schemas.config import EvaluationConfig, config_to_yaml
from schemas.errors import SetupError

_COMMAND: Final = (
    "import sys; from infra.processes import end_with_parent; end_with_parent(int(sys.argv.pop(1)))\n"
    "from flows.cli import main; main()"
)
_TAIL_BYTES: Final = 2_000


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
    is_unwanted: bool = False
    """Whether somebody put an end to it: there is no other attempt."""


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

    def launch(self, order: EvaluationOrder) -> "LocalEvaluation":
        """Start the process.

        Raises:
            SetupError: it cannot be started.
        """
        config_path, log_path = order.folder / "config.yaml", order.folder / "attempt.log"
        write_text_atomically(config_path, config_to_yaml(order.config))
        result_path = order.folder / "attempt.json"
        command = [sys.executable, "-c", _COMMAND, str(os.getpid()), "evaluate", str(config_path), "--json"]
        try:
            with result_path.open("wb") as out, log_path.open("wb") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True
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
        return EvaluationEnd(error="" if code == 0 else self._read_error(code))

    def stop(self) -> bool:
        """Ask it to end, as Ctrl-C does: its workers end and its run is resumable."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return True

    def _read_error(self, code: int) -> str:
        try:
            document: object = json.loads(self._result_path.read_bytes())
            error = cast("dict[str, dict[str, object]]", document)["error"]
            return str(error["message"])
        except (OSError, ValueError, KeyError, TypeError):
            return f"`milepost evaluate` ended with exit code {code}; the end of {self._log_path}:\n{self._log_tail()}"

    def _log_tail(self) -> str:
        try:
            return read_end(self._log_path, _TAIL_BYTES)
        except OSError:
            return ""
