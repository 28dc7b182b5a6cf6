"""Which folder can be watched, and what one holds that is not there or empty."""

import time
from pathlib import Path

import pytest

from schemas.errors import CheckpointError
from tasks.watching.reconciler import Reconciler
from tasks.watching.root import find_root
from tasks.watching.settling import make_evaluation
from tests.support.checkpoint_folders import make_checkpoint
from tests.support.instant_evaluations import InstantLauncher, make_config
from tests.support.reconciling import reconcile, status, watching


def test_roots_that_cannot_be_watched_are_told(tmp_path: Path) -> None:
    evaluations = [make_evaluation(make_config(tmp_path))]
    (tmp_path / "file").write_text("")
    (tmp_path / "out" / "runs" / "r1").mkdir(parents=True)
    for name, patient, message in (
        ("absent", False, "there is no such folder"),
        ("no/such/place", True, "there is no such folder"),
        ("file", True, "this is a file"),
        ("out/runs/r1", True, "Milepost's own"),
    ):
        with pytest.raises(CheckpointError, match=message):
            find_root(tmp_path / name, evaluations, is_patient=patient)
    assert find_root(tmp_path / "absent", evaluations, is_patient=True) == tmp_path / "absent"
    assert find_root(tmp_path / "out", evaluations, is_patient=False) == tmp_path / "out", "AReaL saves into it"


def test_the_fileroot_may_hold_the_checkpoints(tmp_path: Path) -> None:
    config, launcher = make_config(tmp_path), InstantLauncher()
    make_checkpoint(tmp_path / "out" / "checkpoints" / "me" / "exp" / "t" / "default" / "epoch0epochstep1globalstep1")
    for _ in range(2):
        reconcile(tmp_path / "out", config, launcher)
    assert len(launcher.orders) == 1


def test_a_root_that_is_not_there_yet_is_nothing_to_do_for_the_patient(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    reconciler = Reconciler(tmp_path / "ck", [make_evaluation(config)], InstantLauncher())
    assert reconciler.run(once=True).num_open == 0
    with pytest.raises(CheckpointError, match="there is no such folder"):
        reconciler.run(once=True, is_patient=False)


def test_an_empty_root_is_nothing_to_do_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "ck").mkdir()
    outcome = reconcile(tmp_path / "ck", make_config(tmp_path), InstantLauncher())
    assert (outcome.num_done, outcome.num_open, outcome.num_unusable) == (0, 0, 0)
    assert f"{tmp_path / 'ck'} has no checkpoint in it yet; if its trainer has saved one, name" in caplog.text
    caplog.clear()
    with watching(Reconciler(tmp_path / "ck", [make_evaluation(make_config(tmp_path))], InstantLauncher())):
        time.sleep(0.5)
    assert caplog.text.count("has no checkpoint in it yet") == 1
    assert status(tmp_path / "ck", make_config(tmp_path)).checkpoints == ()
