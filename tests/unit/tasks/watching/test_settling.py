"""What goes wrong for a while costs no checkpoint, no weights and no files; what fails is counted and left alone."""

import errno
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.checkpoints import inspect_checkpoint
from schemas.config import EvaluationConfig
from schemas.errors import StoreError
from schemas.watch import LandedCheckpoint
from tasks.watching.launching import EvaluationOrder
from tasks.watching.reconciler import Reconciler
from tasks.watching.settling import Evaluation, identify, make_evaluation
from tests.support.checkpoint_folders import make_checkpoint
from tests.support.instant_evaluations import InstantLauncher, OutlivingLauncher, make_config
from tests.support.reconciling import held, reconcile, states, wait_until, watching

WEEK_S = 7 * 86_400.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for step in (10, 20, 30):
        make_checkpoint(tmp_path / "ck" / f"checkpoint-{step}", fill=step)
    return tmp_path / "ck"


@contextmanager
def no_file_can_be_opened() -> Generator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def first_landed(evaluation: Evaluation) -> LandedCheckpoint:
    folder = evaluation.folder
    return min((folder.read_landed(mark) for mark in folder.marks()), key=lambda one: one.number)


def _reconcile_where_one_cannot_be_noted(root: Path, config: EvaluationConfig, answer: Path) -> None:
    """Have the file system refuse the digest of one checkpoint, as a full one does."""
    refused: list[str] = []

    def refuse(event: str, arguments: tuple[object, ...]) -> None:
        path = str(arguments[1]) if event == "os.rename" else ""
        is_note = "/checkpoints/" in path and path.endswith("/landed.json")
        if is_note and path in (refused or [path]):
            refused.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    sys.addaudithook(refuse)
    outcome = reconcile(root, config, InstantLauncher())
    answer.write_text(json.dumps([outcome.num_done, outcome.num_failed, outcome.num_open, len(refused)]))


def test_a_checkpoint_that_cannot_be_noted_is_tried_once_and_holds_up_no_other(root: Path, tmp_path: Path) -> None:
    config, answer = make_config(tmp_path), tmp_path / "answer.json"
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            _reconcile_where_one_cannot_be_noted(root, config, answer)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "it ends"
    assert json.loads(answer.read_text()) == [2, 1, 1, 1]
    assert reconcile(root, config, InstantLauncher()).num_done == 1


def test_what_fails_by_a_bug_is_counted(root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(InstantLauncher):
        def launch(self, order: EvaluationOrder):
            raise ZeroDivisionError("a bug")

    outcome = reconcile(root, make_config(tmp_path), Broken())
    assert (outcome.num_done, outcome.num_failed, outcome.num_open) == (0, 3, 3)
    assert "Traceback" in caplog.text


def test_a_checkpoint_that_is_forgotten_on_disk_is_found_again_by_a_watcher_at_work(root: Path, tmp_path: Path) -> None:
    config, launcher = make_config(tmp_path), InstantLauncher()
    evaluation = make_evaluation(config)
    with watching(Reconciler(root, [evaluation], launcher)):
        wait_until(lambda: list(states(root, config).values()) == ["done"] * 3)
        wait_until(lambda: not held(config))  # it is done with these folders
        shutil.rmtree(next(evaluation.folder.path.glob("checkpoints/*")))
        wait_until(lambda: list(states(root, config).values()) == ["done"] * 3)
    assert len(launcher.orders) == 3


def test_weights_that_cannot_be_linked_again_now_are_no_bug(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path)
    reconcile(root, config, InstantLauncher())
    evaluation = make_evaluation(config)
    landed = first_landed(evaluation)
    staging = evaluation.folder.path / ".staging"
    shutil.rmtree(staging)
    staging.write_text("")
    with pytest.raises(StoreError, match="cannot be held"):
        evaluation.folder.hold_again(landed, inspect_checkpoint(landed.path))
    staging.unlink()
    evaluation.folder.hold_again(landed, inspect_checkpoint(landed.path))
    assert evaluation.folder.is_untouched(landed)
    shutil.rmtree(landed.path)
    evaluation.folder.release_model(landed)
    evaluation.folder.hold_again(landed, inspect_checkpoint(landed.path))
    assert evaluation.folder.held_model(landed) is None, "gone"


def test_weights_that_cannot_be_read_now_have_not_vanished(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path)
    evaluation = make_evaluation(config)
    reconcile(root, make_config(tmp_path, "watch.every=4"), InstantLauncher())
    landed = first_landed(evaluation)
    evaluation.folder.hold_again(landed, inspect_checkpoint(landed.path))
    with no_file_can_be_opened(), pytest.raises(StoreError, match="cannot be read now"):
        identify(evaluation, landed)
    assert not evaluation.folder.read_landed(landed.mark).is_vanished
    shutil.rmtree(landed.path)
    assert identify(evaluation, landed).weight_digest is not None, "held all the time"


def last_look(config: EvaluationConfig) -> int:
    """When a watcher began to look, which shows its life then; 0 before the first look."""
    life = make_evaluation(config).folder.path / "config.yaml"
    return life.stat().st_mtime_ns if life.exists() else 0


def test_a_half_written_checkpoint_that_was_out_of_sight_is_evaluated_when_it_is_back(tmp_path: Path) -> None:
    root, config = tmp_path / "ck", make_config(tmp_path)
    folder = make_checkpoint(root / "checkpoint-1")
    settings = (folder / "config.json").read_bytes()
    (folder / "config.json").unlink()
    with watching(Reconciler(root, [make_evaluation(config)], InstantLauncher())):
        wait_until(lambda: states(root, config) == {"checkpoint-1": "writing"})
        for _ in range(2):  # the watcher has seen it too: a look that began before is over once another begins
            before = last_look(config)
            wait_until(lambda before=before: last_look(config) != before)
        folder.rename(tmp_path / "away")
        wait_until(lambda: states(root, config) == {"checkpoint-1": "vanished"})
        (tmp_path / "away").rename(folder)
        wait_until(lambda: states(root, config) == {"checkpoint-1": "writing"})
        (folder / "config.json").write_bytes(settings)
        wait_until(lambda: states(root, config) == {"checkpoint-1": "done"})
    assert held(config) == []


def test_weights_held_for_an_evaluation_that_nobody_watches_any_more_are_released(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.every=4")
    reconcile(root, config, InstantLauncher())
    assert len(held(config)) == 1, "the newest may be the last of all"
    other = make_config(tmp_path, "gconfig.temperature=0.5")
    reconcile(root, other, InstantLauncher())
    assert len(held(config)) == 1
    a_week_ago = time.time() - WEEK_S - 60
    os.utime(make_evaluation(config).folder.path / "config.yaml", (a_week_ago, a_week_ago))
    with watching(Reconciler(root, [make_evaluation(config)], InstantLauncher())):
        wait_until(lambda: last_look(config) > (a_week_ago + 1) * 1e9)
        assert make_evaluation(other).folder.release_silent() == 0, "watched again"
    assert len(held(config)) == 1
    assert make_evaluation(other).folder.release_silent(now_s=time.time() + WEEK_S + 60) == 1
    assert held(config) == []


def test_an_outage_of_all_watchers_takes_no_weights_and_what_stays_unwatched_is_released_later(
    root: Path, tmp_path: Path
) -> None:
    first, second, other = (make_config(tmp_path, "watch.every=4", f"seed={seed}") for seed in (1, 2, 3))
    for config in (first, second, other):
        reconcile(root, config, InstantLauncher())
    shutil.rmtree(root)
    root.mkdir()
    folders = [make_evaluation(config).folder for config in (first, second, other)]
    before = time.time() - WEEK_S - 3600
    for age, folder in enumerate(folders):
        os.utime(folder.path / "config.yaml", (before - age, before - age))
    for config in (first, second):  # the second to start must not take the first for what outlived the others
        reconcile(root, config, InstantLauncher())
    assert [len(held(config)) for config in (first, second, other)] == [1, 1, 1]
    later = time.time() + WEEK_S + 60
    os.utime(folders[0].path / "config.yaml", (later, later))
    assert folders[0].release_silent(now_s=later) == 2
    assert [len(held(config)) for config in (first, second, other)] == [1, 0, 0]


def test_looks_at_an_evaluation_that_outlives_its_watcher_leave_no_files(root: Path, tmp_path: Path) -> None:
    config, launcher = make_config(tmp_path, "watch.every=3"), OutlivingLauncher()
    evaluation = make_evaluation(config)
    with watching(Reconciler(root, [evaluation], launcher)):
        wait_until(lambda: bool(launcher.ownerships))

    def owners() -> set[Path]:
        return set((tmp_path / "out").rglob("owners/*"))

    before, other = owners(), InstantLauncher()
    for _ in range(3):
        assert reconcile(root, config, other).num_open == 1
    assert owners() == before
    launcher.ownerships[0].release()
    assert reconcile(root, config, other).num_done == 1
