"""Who is told of what has landed, and of what is given up, hears of it in the end, whatever was away at first."""

from pathlib import Path

from schemas.watch import EvaluationRecord, LandedCheckpoint
from tasks.watching.reconciler import Reconciler
from tasks.watching.settling import Evaluation, make_evaluation
from tests.support.instant_evaluations import InstantLauncher, make_config
from tests.support.reconciling import states, wait_until, watching


class Listener:
    """Hears of what is given up from the `deaf`-th time on."""

    def __init__(self, *, deaf: int = 0) -> None:
        self.landed: list[str] = []
        self.given_up: list[str] = []
        self._deaf = deaf

    def hear_landed(self, _: Evaluation, landed: LandedCheckpoint) -> None:
        self.landed.append(landed.path.name)

    def hear_given_up(self, _: Evaluation, landed: LandedCheckpoint, record: EvaluationRecord) -> bool:
        self.given_up.append(f"{landed.path.name}: {record.error}")
        return len(self.given_up) > self._deaf


def make_reconciler(root: Path, evaluation: Evaluation, launcher: InstantLauncher, listener: Listener) -> Reconciler:
    return Reconciler(root, [evaluation], launcher, on_landed=listener.hear_landed, on_given_up=listener.hear_given_up)


def test_what_landed_is_told_again_when_its_evaluation_is_taken_up(root: Path, tmp_path: Path) -> None:
    evaluation, launcher = make_evaluation(make_config(tmp_path, "watch.every=3")), InstantLauncher()
    launcher.hindrance = "the server is gone"
    make_reconciler(root, evaluation, launcher, Listener()).run(once=True)
    launcher.hindrance, listener = "", Listener()
    make_reconciler(root, evaluation, launcher, listener).run(once=True)
    assert listener.landed == ["checkpoint-30"]
    make_reconciler(root, evaluation, launcher, listener).run(once=True)
    assert listener.landed == ["checkpoint-30"], "it is done"


def test_what_is_given_up_is_told_until_it_is_heard(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.every=3", "watch.max_attempts=1")
    evaluation, launcher, listener = (
        make_evaluation(config),
        InstantLauncher(fails=lambda _order: True),
        Listener(deaf=3),
    )
    outcome = make_reconciler(root, evaluation, launcher, listener).run(once=True)
    assert (outcome.num_failed, outcome.num_open) == (1, 0)
    assert listener.given_up == ["checkpoint-30: made to fail"]
    with watching(make_reconciler(root, evaluation, launcher, listener)):
        wait_until(lambda: len(listener.given_up) == 4)
        num_looks = len(listener.given_up)
        wait_until(lambda: states(root, config).get("checkpoint-30") == "failed")
    assert len(listener.given_up) == num_looks
    make_reconciler(root, evaluation, launcher, listener).run(once=True)
    assert len(listener.given_up) == num_looks, "it was heard"
    assert len(launcher.orders) == 1


def test_what_cannot_be_launched_is_told_and_tried_again(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.every=3", "watch.max_attempts=1")
    launcher, listener = InstantLauncher(fails=lambda _order: True, cause="impossible"), Listener()
    for number in (1, 2):
        outcome = make_reconciler(root, make_evaluation(config), launcher, listener).run(once=True)
        assert (outcome.num_failed, outcome.num_open) == (1, 1)
        assert listener.given_up == ["checkpoint-30: made to fail"] * number
    assert make_reconciler(root, make_evaluation(config), InstantLauncher(), listener).run(once=True).num_done == 1


def test_who_cancels_an_evaluation_is_not_told_that_it_is_given_up(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.every=3")
    launcher, listener = InstantLauncher(fails=lambda _order: True, cause="unwanted"), Listener()
    outcome = make_reconciler(root, make_evaluation(config), launcher, listener).run(once=True)
    assert (outcome.num_failed, len(launcher.orders)) == (1, 1)
    assert listener.given_up == []
