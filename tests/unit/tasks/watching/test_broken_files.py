"""A file of Milepost's own that cannot be read, or was removed to begin anew, concerns its checkpoint alone."""

import shutil
from pathlib import Path

import pytest

from tasks.watching.reconciler import Reconciler
from tasks.watching.settling import make_evaluation
from tests.support.checkpoint_folders import make_checkpoint
from tests.support.instant_evaluations import InstantLauncher, make_config, published_runs
from tests.support.reconciling import reconcile, states, wait_until, watching


@pytest.mark.parametrize("pattern", ["checkpoints/*/landed.json", "results/*/record.json"])
def test_a_file_that_cannot_be_read_holds_up_no_other_checkpoint_and_is_told(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, pattern: str
) -> None:
    config, launcher = make_config(tmp_path, "watch.retry_after_s=60"), InstantLauncher()
    reconcile(root, config, launcher)
    evaluation = make_evaluation(config)
    broken = next(evaluation.folder.path.glob(pattern))
    broken.write_text("{")
    with watching(Reconciler(root, [evaluation], launcher)):
        make_checkpoint(root / "checkpoint-40", fill=40)
        wait_until(lambda: len(published_runs(config)) == 4)
        make_checkpoint(root / "checkpoint-50", fill=50)
        wait_until(lambda: len(published_runs(config)) == 5)
    told = [record for record in caplog.records if str(broken) in record.getMessage()]
    assert len(told) == 1
    assert reconcile(root, config, launcher).num_failed == 1, "a command that leaves work undone does not end well"


def test_a_result_that_is_removed_is_tried_anew_by_a_watcher_at_work(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.every=3", "watch.max_attempts=1")
    launcher = InstantLauncher(fails=lambda _order: True)
    evaluation = make_evaluation(config)
    with watching(Reconciler(root, [evaluation], launcher)):
        wait_until(lambda: states(root, config).get("checkpoint-30") == "failed")
        shutil.rmtree(launcher.orders[0].folder, ignore_errors=True)  # the watcher may write a note there
        wait_until(lambda: len(launcher.orders) == 2)
    assert len({order.name for order in launcher.orders}) == 2
