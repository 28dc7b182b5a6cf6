"""Runs `milepost evaluate` as a user does: a process of its own, watched from outside through its files."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pyarrow as pa

from infra.fileroot.run_directory import RunDirectory, list_runs
from infra.store import open_store
from schemas.identity import SampleKey
from schemas.inference import SampleRecord
from schemas.summary import RunSummary
from tasks.inference.exchange.journal import finished_samples, read_journal
from tests.support.command_server import start_command
from tests.support.processes import is_alive

ROOT = Path(__file__).resolve().parents[2]
SUMS = ROOT / "tests" / "support" / "sums.jsonl"
"""160 problems. A run that reads them costs 4 s less of a processor than one that imports reasoning_gym."""
PATIENCE_S = 500.0
"""Start-up takes 15-25 s on a quiet machine, and minutes on a busy one."""
END_S = 90.0
"""Longest time from a signal to the end of a command that was asked to end, seconds on a quiet machine."""


CONFIG = """
experiment_name: test
actor: {dtype: float32}  # the quicker one on processors without bfloat16
gconfig: {n_samples: 2, temperature: 0.7}
"""


def own_cores() -> list[int]:
    """The cores of this machine, those first that no other test process begins with."""
    cores = sorted(os.sched_getaffinity(0))
    first = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % len(cores)
    return cores[first:] + cores[:first]


class Command:
    """One command of `milepost` in a process group of its own, as a shell starts it."""

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        environment: dict[str, str],
        *,
        cores: Sequence[int],
        is_fresh: bool = False,
    ) -> None:
        """`folder` holds its output, and its modules are found as those of a working directory are.

        `is_fresh`: it imports what it needs itself, as a user's does, instead of being a fork of what has done so.
        """
        self._stdout, self._stderr = (folder / f"command-{time.monotonic_ns()}.{name}" for name in ("out", "err"))
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self.process = start_command(
                [*arguments, "--json"],
                folder=folder,
                environment=environment | {"PYTHONPATH": str(ROOT)},
                cores=cores,
                output=(out, err),
                is_fresh=is_fresh,
            )

    @property
    def messages(self) -> str:
        """What it has said on stderr."""
        return self._stderr.read_text("utf-8")

    def finish(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end and return the exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"no end within {timeout_s} s:\n{self.messages}") from None

    def document(self) -> str:
        """The one JSON object on stdout."""
        lines = self._stdout.read_text("utf-8").splitlines()
        assert len(lines) == 1, lines
        assert isinstance(json.loads(lines[0]), dict)
        return lines[0]

    def summary(self) -> RunSummary:
        """Wait for success and return what it printed."""
        return RunSummary.model_validate_json(self.success())

    def success(self) -> str:
        """Wait for success and return the JSON that it printed."""
        assert self.finish() == 0, self.messages
        assert "Traceback" not in self.messages
        return self.document()

    def failure(self, exit_code: int, *words: str) -> str:
        """Wait for the end with this exit code, check what was said, and return it."""
        assert self.finish() == exit_code, self.messages
        assert "Traceback" not in self.messages
        for word in words:
            assert word in self.messages, self.messages
        return self.messages

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something is true while the command runs."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.messages}"
            assert time.monotonic() < deadline, self.messages
            time.sleep(0.05)

    def children(self, module: str) -> list[psutil.Process]:
        """Its processes that run a module."""
        found: list[psutil.Process] = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if module in process.cmdline():
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def signal_group(self, number: signal.Signals) -> float:
        """Send a signal as a terminal does, to the whole process group; return the seconds until the end."""
        began = time.monotonic()
        os.killpg(self.process.pid, number)
        self.finish(END_S)
        return time.monotonic() - began


def only_run(fileroot: Path) -> RunDirectory:
    """The single run of a fileroot."""
    (run,) = list_runs(fileroot)
    return run


def num_finished(fileroot: Path) -> int:
    """Samples in all journals of a fileroot."""
    return len(finished_samples(folder for run in list_runs(fileroot) for folder in run.replica_dirs()))


def records_of(run: RunDirectory, attempt: int) -> list[SampleRecord]:
    """What one attempt journalled."""
    folders = [folder for folder in run.replica_dirs() if folder.parent.name == f"{attempt:04d}"]
    return [record for folder in folders for record in read_journal(folder)]


def keys(records: Sequence[SampleRecord]) -> set[SampleKey]:
    """Their (item, repeat)s, each of which must be there once."""
    found = [SampleKey(record.item_id, record.repeat) for record in records]
    assert len(found) == len(set(found))
    return set(found)


def samples_of(summary: RunSummary) -> pa.Table:
    """The published samples of a run, in order of item and repeat; each planned one exactly once."""
    table = open_store(summary.store.parent).table("samples", run_id=summary.run_id).to_table()
    table = table.sort_by([("item_id", "ascending"), ("repeat", "ascending")])
    pairs = list(zip(table.column("item_id").to_pylist(), table.column("repeat").to_pylist(), strict=True))
    assert len(pairs) == len(set(pairs)) == summary.num_planned
    return table


def ended(processes: Sequence[psutil.Process], timeout_s: float = 10.0) -> bool:
    """Whether all of these end in time."""
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    return not any(is_alive(process.pid) for process in alive)
