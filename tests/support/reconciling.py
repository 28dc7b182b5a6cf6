"""One look, many looks, and what is there afterwards."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from schemas.config import EvaluationConfig
from schemas.watch import WatchOutcome, WatchStatus
from tasks.watching.launching import EvaluationLauncher
from tasks.watching.reconciler import Reconciler
from tasks.watching.settling import make_evaluation
from tasks.watching.status import read_status


def reconcile(root: Path, config: EvaluationConfig, launcher: EvaluationLauncher) -> WatchOutcome:
    return Reconciler(root, [make_evaluation(config)], launcher).run(once=True)


def status(root: Path, *configs: EvaluationConfig) -> WatchStatus:
    return read_status(root, [make_evaluation(config) for config in configs], now=datetime.now(UTC))


def states(root: Path, config: EvaluationConfig) -> dict[str, str]:
    return {one.path.name: one.cells[0].state for one in status(root, config).checkpoints}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def held(config: EvaluationConfig) -> list[Path]:
    return list(make_evaluation(config).folder.path.glob("checkpoints/*/model/*"))


@contextmanager
def watching(reconciler: Reconciler) -> Generator[None]:
    """Have it watch while the block runs."""
    thread = threading.Thread(target=reconciler.run)
    thread.start()
    try:
        yield
    finally:
        reconciler.stop()
        thread.join()
