"""Watchers that die, and several at once: neither gap nor double."""

import os
import shutil
import threading
from collections import Counter
from pathlib import Path

from schemas.config import EvaluationConfig
from tasks.watching.launching import EvaluationOrder
from tests.support.checkpoint_folders import make_checkpoint
from tests.support.instant_evaluations import InstantLauncher, die_at, make_config, published_runs
from tests.support.reconciling import held, reconcile, states


def _watch_and_die(root: Path, config: EvaluationConfig, at: int, below: Path) -> int:
    pid = os.fork()
    if pid == 0:
        import sys

        sys.addaudithook(die_at(at, below))
        try:
            reconcile(root, config, InstantLauncher())
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_watcher_may_die_between_any_two_steps(tmp_path: Path) -> None:
    at, num_deaths = 1, 0
    while True:
        folder = tmp_path / str(at)
        for step in (1, 2):
            make_checkpoint(folder / "ck" / f"checkpoint-{step}", fill=step)
        config = make_config(folder)
        code = _watch_and_die(folder / "ck", config, at, folder / "out")
        if code == 0:
            break
        assert code == 9
        num_deaths += 1
        reconcile(folder / "ck", config, InstantLauncher())
        digests = Counter(run["weight_digest"] for run in published_runs(config))
        assert sorted(digests.values()) == [1, 1], f"killed before change {at}"
        assert set(states(folder / "ck", config).values()) == {"done"}
        assert held(config) == []
        shutil.rmtree(folder)
        at += 7
    assert num_deaths > 10


def test_two_watchers_at_once_make_neither_gap_nor_double(tmp_path: Path) -> None:
    root = tmp_path / "ck"
    for step in range(8):
        make_checkpoint(root / f"checkpoint-{step}", fill=step)
    config = make_config(tmp_path, "watch.max_concurrent=2")
    pids: list[int] = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            try:
                reconcile(root, config, InstantLauncher(duration_s=0.2))
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    reconcile(root, config, InstantLauncher())  # both may have found the last one taken by the other
    digests = Counter(run["weight_digest"] for run in published_runs(config))
    assert list(digests.values()) == [1] * 8
    assert set(states(root, config).values()) == {"done"}


def test_a_run_that_somebody_is_making_is_left_to_him(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.every=3")
    ready, go = threading.Event(), threading.Event()

    class Slow(InstantLauncher):
        def launch(self, order: EvaluationOrder):
            ready.set()
            go.wait(30)
            return super().launch(order)

    thread = threading.Thread(target=reconcile, args=(root, config, Slow()))
    thread.start()
    assert ready.wait(30)
    other = InstantLauncher()
    assert reconcile(root, config, other).num_open == 1
    assert states(root, config)["checkpoint-30"] == "running"
    assert other.orders == []
    go.set()
    thread.join()
    assert reconcile(root, config, other).num_open == 0
