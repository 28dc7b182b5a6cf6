"""What was out of sight is found again; what is taken away while it lands is never evaluated in half."""

import shutil
import threading
from pathlib import Path

import pytest

from infra.checkpoints.pins import link_checkpoint
from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from schemas.watch import LandedCheckpoint
from tasks.watching.launching import EvaluationOrder
from tasks.watching.reconciler import Reconciler
from tasks.watching.settling import make_evaluation
from tests.support.instant_evaluations import InstantLauncher, make_config
from tests.support.reconciling import held, reconcile, states, wait_until, watching


def landed(config: EvaluationConfig) -> list[LandedCheckpoint]:
    folder = make_evaluation(config).folder
    return sorted((folder.read_landed(mark) for mark in folder.marks()), key=lambda one: one.number)


def hold_as_from_another_file_system(config: EvaluationConfig, root: Path) -> None:
    """Hold weights by symbolic links, as is done where hard ones are refused."""
    for model in held(config):
        (model / "model.safetensors").unlink()
        (model / "model.safetensors").symlink_to(root / model.name / "model.safetensors")


def test_what_was_unmounted_while_it_waited_is_evaluated_when_it_is_back(root: Path, tmp_path: Path) -> None:
    config, launcher = make_config(tmp_path), InstantLauncher()
    launcher.hindrance = "the server is gone"
    reconcile(root, config, launcher)
    hold_as_from_another_file_system(config, root)
    before = landed(config)
    root.rename(tmp_path / "unmounted")
    reconcile(root, config, launcher)
    assert [one.is_vanished for one in landed(config)] == [True] * 3
    (tmp_path / "unmounted").rename(root)
    assert set(states(root, config).values()) == {"waiting"}
    launcher.hindrance = ""
    assert reconcile(root, config, launcher).num_done == 3
    assert [(one.mark, one.number) for one in landed(config)] == [(one.mark, one.number) for one in before]
    assert set(states(root, config).values()) == {"done"}


def test_what_is_rotated_away_while_it_is_linked_vanishes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, launcher = make_config(tmp_path), InstantLauncher()
    going, gone = threading.Event(), threading.Event()

    def rotate(report: CheckpointReport, folder: Path) -> str | None:
        if report.path.name == "checkpoint-10" and not going.is_set():
            (report.path / "config.json").unlink()
            going.set()
            reason = link_checkpoint(report, folder)
            shutil.rmtree(report.path)
            gone.set()
            return reason
        return link_checkpoint(report, folder)

    monkeypatch.setattr("infra.fileroot.watch_folder.link_checkpoint", rotate)
    with watching(Reconciler(root, [make_evaluation(config)], launcher)):
        wait_until(gone.is_set)
        wait_until(lambda: states(root, config).get("checkpoint-10") == "vanished")
        wait_until(lambda: len(launcher.orders) == 2)
    assert {Path(order.config.actor.path).name for order in launcher.orders} == {"checkpoint-20", "checkpoint-30"}


def test_what_is_saved_anew_while_it_is_linked_is_evaluated_as_it_is_then(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, launcher = make_config(tmp_path, "watch.every=3"), InstantLauncher()
    changed: list[str] = []

    def save_anew(report: CheckpointReport, folder: Path) -> str | None:
        if report.path.name == "checkpoint-30" and not changed:
            changed.append((report.path / "config.json").read_text().replace("1024", "512"))
            (report.path / "config.json").write_text(changed[0])
        return link_checkpoint(report, folder)

    monkeypatch.setattr("infra.fileroot.watch_folder.link_checkpoint", save_anew)
    assert reconcile(root, config, launcher).num_open == 0
    assert [one.path.name for one in landed(config)] == ["checkpoint-10", "checkpoint-20"]
    reconcile(root, config, launcher)
    (order,) = launcher.orders
    assert Path(order.config.actor.path).name == "checkpoint-30"


def test_what_is_unmounted_while_it_is_evaluated_is_tried_again_as_another_attempt(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.every=3", "watch.max_attempts=1")

    class Unmounting(InstantLauncher):
        def launch(self, order: EvaluationOrder):
            hold_as_from_another_file_system(config, root)
            if not self.orders:
                root.rename(tmp_path / "unmounted")
            return super().launch(order)

    launcher = Unmounting(fails=lambda _order: not root.exists())
    reconcile(root, config, launcher)
    (tmp_path / "unmounted").rename(root)
    assert reconcile(root, config, launcher).num_done == 1
    first, second = launcher.orders
    assert first.name != second.name, "the first one is not found to have ended long ago"
