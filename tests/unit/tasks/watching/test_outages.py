"""What is away, or whose machine is gone, is no failure of an evaluation: it uses up no attempts, and is said."""

from pathlib import Path

import pytest

from infra.files.atomic import write_text_atomically
from schemas.config import EvaluationConfig
from schemas.errors import TransientError
from schemas.inference import Heartbeat
from schemas.states import WorkerPhase
from schemas.watch import EvaluationRecord
from tasks.watching.launching import EvaluationEnd, EvaluationOrder, LocalLauncher
from tasks.watching.reconciler import Reconciler
from tasks.watching.settling import make_evaluation
from tests.support.instant_evaluations import InstantLauncher, begin, make_config
from tests.support.reconciling import reconcile, states, status, wait_until, watching


def only_record(config: EvaluationConfig) -> EvaluationRecord:
    evaluation = make_evaluation(config)
    (path,) = evaluation.folder.path.glob("results/*/record.json")
    record = evaluation.folder.read_record(path.parent.name)
    assert record is not None
    return record


class CutOffLauncher:
    """Has each attempt finish some samples more, and then lose its process."""

    def __init__(self, num_more: int) -> None:
        self.orders: list[EvaluationOrder] = []
        self._num_more = num_more
        self._num_done = 0

    def launch(self, order: EvaluationOrder) -> "CutOffEvaluation":
        self.orders.append(order)
        run, ownership, _ = begin(order)
        self._num_done += self._num_more
        worker = run.replica_dir(1, 0)
        worker.mkdir(parents=True, exist_ok=True)
        beat = Heartbeat(phase=WorkerPhase.GENERATING, pid=1, time=0.0, num_done=self._num_done)
        write_text_atomically(worker / "heartbeat.json", beat.model_dump_json())
        ownership.release()
        return CutOffEvaluation()


class CutOffEvaluation:
    """One of them."""

    def poll(self) -> EvaluationEnd:
        return EvaluationEnd(error="the machine was started again", cause="lost")

    def stop(self) -> bool:
        return True


def test_what_an_evaluation_needs_and_is_away_uses_up_no_attempt(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.max_attempts=1")
    launcher = InstantLauncher(fails=lambda _order: True, cause="away")
    first = reconcile(root, config, launcher)
    assert (first.num_done, first.num_failed, first.num_open) == (0, 3, 3), "the command says so, and ends"
    assert set(states(root, config).values()) == {"waiting"}
    details = {one.cells[0].detail for one in status(root, config).checkpoints}
    assert details == {"made to fail (the next attempt is due now)"}
    assert reconcile(root, config, launcher).num_failed == 3
    assert len({order.name for order in launcher.orders}) == 6, "an attempt has a name of its own"
    assert reconcile(root, config, InstantLauncher()).num_done == 3


def test_one_checkpoint_that_lacks_something_holds_up_no_other(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.max_attempts=1")
    launcher = InstantLauncher(fails=lambda order: "checkpoint-30" in order.config.actor.path, cause="away")
    assert reconcile(root, config, launcher).num_done == 2
    with watching(Reconciler(root, [make_evaluation(config)], launcher)):
        wait_until(lambda: sum("checkpoint-30" in order.config.actor.path for order in launcher.orders) >= 3)
    assert states(root, config)["checkpoint-30"] == "waiting"


def test_the_wait_for_what_is_away_doubles_up_to_an_hour(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.retry_after_s=0.01", "watch.every=3", "watch.max_attempts=100")
    evaluation = make_evaluation(config)
    reconcile(root, config, InstantLauncher(fails=lambda _order: True, cause="away"))
    evaluation.folder.write_record(
        only_record(config).model_copy(update={"num_outages": 5000, "num_idle": 5000, "not_before": None})
    )
    reconcile(root, config, InstantLauncher(fails=lambda _order: True, cause="away"))
    record = only_record(config)
    assert record.not_before is not None
    assert record.started_at is not None
    assert 3590 < (record.not_before - record.started_at).total_seconds() < 3660


@pytest.mark.parametrize(("num_more", "state"), [(2, "waiting"), (0, "failed")])
def test_an_attempt_that_is_cut_off_counts_only_if_it_finished_nothing(
    root: Path, tmp_path: Path, num_more: int, state: str
) -> None:
    config = make_config(tmp_path, "watch.every=3", "watch.max_attempts=2")
    launcher = CutOffLauncher(num_more)
    for _ in range(4):
        reconcile(root, config, launcher)
    assert only_record(config).state == state
    assert len(launcher.orders) == (4 if num_more else 2)
    assert len({order.name for order in launcher.orders}) == len(launcher.orders)
    if num_more:
        assert reconcile(root, config, InstantLauncher()).num_done == 1


def _local_order(config: EvaluationConfig, folder: Path) -> EvaluationOrder:
    folder.mkdir()
    return EvaluationOrder(name="one", config=config, folder=folder)


def test_a_process_that_says_what_is_away_has_not_failed(root: Path, tmp_path: Path) -> None:
    def end_of(number: int, *overrides: str) -> EvaluationEnd:
        config = make_config(tmp_path, f"actor.path={root / 'checkpoint-10'}", *overrides)
        running = LocalLauncher().launch(_local_order(config, tmp_path / str(number)))
        ends: list[EvaluationEnd] = []
        wait_until(lambda: (end := running.poll()) is not None and (ends.append(end) or True))
        return ends[0]

    lacking = end_of(1, "engine.python=/no/such/python")
    assert (lacking.cause, "/no/such/python" in lacking.error) == ("away", True)
    unlaunchable = end_of(3, "scheduler.type=ray")
    assert (unlaunchable.cause, "scheduler.type" in unlaunchable.error) == ("impossible", True)
    wrong = end_of(2, "actor.path=/no/such/checkpoint")
    assert (wrong.cause, "/no/such/checkpoint" in wrong.error) == ("failed", True)


def test_no_process_is_started_while_something_is_away_that_all_need(root: Path, tmp_path: Path) -> None:
    def refuse() -> None:
        raise TransientError("no server")

    config = make_config(tmp_path, "watch.max_attempts=1")
    assert reconcile(root, config, LocalLauncher(refuse)).num_failed == 1
    assert set(states(root, config).values()) == {"waiting"}
    assert not list(tmp_path.rglob("attempt.log"))
