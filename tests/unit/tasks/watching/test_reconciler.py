"""Wanted minus settled is done once: whoever watches, whatever dies, under whatever name."""

import json
import shutil
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.digests import digest_checkpoint
from infra.checkpoints.folder_state import read_state
from infra.fileroot.watch_folder import WatchFolder
from infra.store import open_store
from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from tasks.checkpoint.resolution import identify_checkpoint
from tasks.watching.evaluation_key import evaluation_key
from tasks.watching.launching import EvaluationOrder
from tasks.watching.published import find_repetition
from tasks.watching.reconciler import Reconciler
from tasks.watching.settling import make_evaluation
from tests.support.checkpoint_folders import make_checkpoint, safetensors
from tests.support.instant_evaluations import InstantLauncher, make_config, published_runs
from tests.support.reconciling import held, reconcile, states, status, wait_until, watching


def test_each_checkpoint_is_evaluated_once_the_newest_first_and_let_go(root: Path, tmp_path: Path) -> None:
    config, launcher = make_config(tmp_path), InstantLauncher()
    outcome = reconcile(root, config, launcher)
    assert (outcome.num_done, outcome.num_failed, outcome.num_open) == (3, 0, 0)
    assert [Path(order.config.actor.path).name for order in launcher.orders] == [
        "checkpoint-30",
        "checkpoint-20",
        "checkpoint-10",
    ]
    assert launcher.most_running == 1
    assert held(config) == []
    again = InstantLauncher()
    assert reconcile(root, config, again).num_done == 0
    assert again.orders == []
    assert states(root, config) == {f"checkpoint-{step}": "done" for step in (10, 20, 30)}
    assert status(root, config).counts == {"done": 3}


def test_the_same_weights_under_another_name_are_not_evaluated_again(root: Path, tmp_path: Path) -> None:
    config, launcher = make_config(tmp_path), InstantLauncher()
    make_checkpoint(root / "final", fill=30)
    reconcile(root, config, launcher)
    make_checkpoint(root / "best", fill=10)
    reconcile(root, config, launcher)
    assert len(launcher.orders) == len(published_runs(config)) == 3
    assert set(states(root, config).values()) == {"done"}
    assert held(config) == []


@pytest.mark.parametrize(
    ("name", "changes", "num_evaluated"),
    [
        ("config.json", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, 1),
        ("generation_config.json", {"eos_token_id": 6}, 1),
        ("tokenizer_config.json", {"add_prefix_space": True}, 1),
        ("config.json", {"transformers_version": "5.9"}, 0),
        ("generation_config.json", {"temperature": 0.3}, 0),
        ("trainer_state.json", {"loss": 0.5}, 0),
    ],
)
def test_the_same_weights_under_a_mended_configuration_are_another_model(
    root: Path, tmp_path: Path, name: str, changes: dict[str, object], num_evaluated: int
) -> None:
    config, launcher = make_config(tmp_path), InstantLauncher()
    reconcile(root, config, launcher)
    path = root / "checkpoint-20" / name
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))
    assert reconcile(root, config, launcher).num_done == num_evaluated
    assert len(published_runs(config)) == 3 + num_evaluated
    assert set(states(root, config).values()) == {"done"}


def test_what_a_version_settled_by_the_weights_alone_stays_settled(root: Path, tmp_path: Path) -> None:
    config, launcher = make_config(tmp_path), InstantLauncher()
    reconcile(root, config, launcher)
    folder = make_evaluation(config).folder
    for mark in folder.marks():  # as an earlier version left it
        landed = folder.read_landed(mark)
        state = read_state(landed.path, landed.path)
        record = folder.read_record(landed.model_key or "")
        assert state is not None
        assert record is not None
        (folder.path / "results" / record.model_key).rename(folder.path / "results" / record.weight_digest)
        (folder.path / "checkpoints" / mark).rename(folder.path / "checkpoints" / state.weights_mark)
        folder.write_record(record.model_copy(update={"identity_digest": None}))
        folder.update_landed(landed.model_copy(update={"identity_digest": None, "mark": state.weights_mark}))
    assert reconcile(root, config, launcher).num_done == 0
    assert set(states(root, config).values()) == {"done"}


def test_a_folder_saved_again_is_evaluated_again(root: Path, tmp_path: Path) -> None:
    config, launcher = make_config(tmp_path), InstantLauncher()
    reconcile(root, config, launcher)
    time.sleep(0.02)
    (root / "checkpoint-20" / "model.safetensors").write_bytes(safetensors({"a": (3, 4)}, fill=99))
    assert reconcile(root, config, launcher).num_done == 1
    assert len({run["weight_digest"] for run in published_runs(config)}) == 4


def test_what_was_evaluated_by_hand_or_is_forgotten_is_not_evaluated_again(root: Path, tmp_path: Path) -> None:
    config, launcher = make_config(tmp_path), InstantLauncher()
    reconcile(root, config, launcher)
    shutil.rmtree(make_evaluation(config).folder.path)
    outcome = reconcile(root, config, launcher)
    assert (outcome.num_done, len(launcher.orders)) == (3, 3)
    other = make_config(tmp_path, "gconfig.temperature=0.5")
    reconcile(root, other, launcher)
    assert len(launcher.orders) == 6, "another evaluation"


def test_an_evaluation_repeats_one_of_the_same_model_rows_and_settings_only(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.every=3")
    reconcile(root, config, InstantLauncher())
    ((version, run_id),) = (
        (row["dataset_version"], row["run_id"])
        for row in open_store(config.cluster.folder).table("runs").to_table().to_pylist()
    )
    same, other = (identify_checkpoint(inspect_checkpoint(root / f"checkpoint-{step}")) for step in (30, 20))
    assert find_repetition(config, same, dataset_version=version) == run_id
    assert find_repetition(make_config(tmp_path, "watch.every=2"), same, dataset_version=version) == run_id
    assert find_repetition(config, same, dataset_version="later") is None
    assert find_repetition(config, other, dataset_version=version) is None
    for change in ("gconfig.temperature=0.5", "seed=2", "experiment_name=b", "grading.timeout_s=5"):
        assert find_repetition(make_config(tmp_path, change), same, dataset_version=version) is None


def test_weights_outlive_the_trainers_rotation_until_they_are_evaluated(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path)

    class Rotating(InstantLauncher):
        def launch(self, order: EvaluationOrder):
            shutil.rmtree(root / "checkpoint-10", ignore_errors=True)
            shutil.rmtree(root / "checkpoint-20", ignore_errors=True)
            return super().launch(order)

    assert reconcile(root, config, Rotating()).num_done == 3
    assert {Path(run["checkpoint"]).name for run in published_runs(config)} == {
        f"checkpoint-{step}" for step in (10, 20, 30)
    }
    assert held(config) == []


def test_a_shard_rewritten_in_place_while_it_waits_has_vanished_and_what_it_became_is_evaluated(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(tmp_path, "watch.order=oldest")

    class Rewriting(InstantLauncher):
        def launch(self, order: EvaluationOrder):
            if not self.orders:
                with (root / "checkpoint-30" / "model.safetensors").open("r+b") as file:
                    file.seek(-1, 2)
                    file.write(b"z")
            return super().launch(order)

    launcher = Rewriting()
    with caplog.at_level("WARNING"):
        reconcile(root, config, launcher)
    assert "checkpoint-30 was removed or rewritten before it could be evaluated" in caplog.text
    reconcile(root, config, launcher)  # the first may have ended before it saw the new content
    assert [Path(order.config.actor.path).name for order in launcher.orders] == [
        "checkpoint-10",
        "checkpoint-20",
        "checkpoint-30",
    ]
    assert states(root, config)["checkpoint-30"] == "done"
    assert len({run["weight_digest"] for run in published_runs(config)}) == 3


def test_failures_are_tried_again_up_to_the_cap_and_never_done(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.max_attempts=2")
    launcher = InstantLauncher(fails=lambda order: "checkpoint-20" in order.config.actor.path)
    first = reconcile(root, config, launcher)
    assert (first.num_done, first.num_failed, first.num_open) == (2, 1, 1)
    assert states(root, config)["checkpoint-20"] == "retrying"
    second = reconcile(root, config, launcher)
    assert (second.num_failed, second.num_open) == (1, 0)
    assert states(root, config)["checkpoint-20"] == "failed"
    assert held(config) == []
    reconcile(root, config, launcher)
    names = Counter(Path(order.config.actor.path).name for order in launcher.orders)
    assert names == {"checkpoint-10": 1, "checkpoint-20": 2, "checkpoint-30": 1}
    assert len({order.name for order in launcher.orders}) == 4, "an attempt has a name of its own"
    (cell,) = (one.cells[0] for one in status(root, config).checkpoints if one.path.name == "checkpoint-20")
    assert cell.detail == "made to fail"


def test_a_launcher_out_of_reach_is_no_failure_of_an_evaluation(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.max_attempts=1")
    launcher = InstantLauncher()
    launcher.hindrance = "the server is gone"
    first = reconcile(root, config, launcher)
    assert (first.num_done, first.num_failed, first.num_open) == (0, 1, 3), "asked once, not once per checkpoint"
    assert set(states(root, config).values()) == {"waiting"}
    assert "the server is gone (the next attempt is due now)" in {
        one.cells[0].detail for one in status(root, config).checkpoints
    }
    launcher.hindrance = ""
    assert reconcile(root, config, launcher).num_done == 3


def test_a_watcher_waits_for_a_launcher_that_is_out_of_reach(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.max_attempts=1")
    launcher = InstantLauncher()
    launcher.hindrance = "the server is gone"
    reconciler = Reconciler(root, [make_evaluation(config)], launcher)
    with watching(reconciler):
        wait_until(lambda: launcher.num_refused >= 2)
        launcher.hindrance = ""
        wait_until(lambda: len(published_runs(config)) == 3)


def test_what_somebody_put_an_end_to_is_not_tried_again(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.every=3")
    launcher = InstantLauncher(fails=lambda _order: True, cause="unwanted")
    assert reconcile(root, config, launcher).num_failed == 1
    assert reconcile(root, config, launcher).num_open == 0
    assert states(root, config)["checkpoint-30"] == "failed"
    assert len(launcher.orders) == 1
    shutil.rmtree(launcher.orders[0].folder)
    assert reconcile(root, config, launcher).num_failed == 1
    first, second = launcher.orders
    assert first.name != second.name, "what is begun anew is not found to have ended long ago"


def test_the_wait_before_an_attempt_doubles(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.retry_after_s=1000", "watch.every=3")
    launcher = InstantLauncher(fails=lambda _order: True)
    began = datetime.now(UTC)
    reconcile(root, config, launcher)
    assert reconcile(root, config, launcher).num_open == 1
    assert len(launcher.orders) == 1, "not before its time"
    evaluation = make_evaluation(config)
    (path,) = evaluation.folder.path.glob("results/*/record.json")
    record = evaluation.folder.read_record(path.parent.name)
    assert record is not None
    assert record.not_before is not None
    assert timedelta(seconds=990) < record.not_before - began < timedelta(seconds=1100)


def test_no_more_run_at_once_than_allowed(tmp_path: Path) -> None:
    root = tmp_path / "ck"
    for step in range(9):
        make_checkpoint(root / f"checkpoint-{step}", fill=step)
    launcher = InstantLauncher(duration_s=2.0)
    reconcile(root, make_config(tmp_path, "watch.max_concurrent=3"), launcher)
    assert len(launcher.orders) == 9
    assert 2 <= launcher.most_running <= 3


def test_two_evaluations_of_each_take_turns(root: Path, tmp_path: Path) -> None:
    one, two = make_config(tmp_path), make_config(tmp_path, "gconfig.temperature=0.5")
    launcher = InstantLauncher()
    Reconciler(root, [make_evaluation(one), make_evaluation(two)], launcher).run(once=True)
    steps = [Path(order.config.actor.path).name for order in launcher.orders]
    assert steps == [f"checkpoint-{step}" for step in (30, 30, 20, 20, 10, 10)]
    assert status(root, one, two).counts == {"done": 6}


def test_what_is_not_wanted_is_skipped_and_not_held(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.every=2")
    launcher = InstantLauncher()
    reconcile(root, config, launcher)
    assert states(root, config) == {"checkpoint-10": "skipped", "checkpoint-20": "done", "checkpoint-30": "skipped"}
    assert [path.name for path in held(config)] == ["checkpoint-30"], "the newest alone may still be the last of all"
    all_of_them = make_config(tmp_path, "watch.every=1")
    assert reconcile(root, all_of_them, launcher).num_done == 2, "held again from where it still is"


def test_an_epoch_that_the_trainers_state_tells_falls_due(root: Path, tmp_path: Path) -> None:
    for folder, step, epoch in (("checkpoint-10", 10, 0.5), ("checkpoint-20", 20, 1.0), ("checkpoint-30", 30, 1.5)):
        (root / folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": epoch}))
    config = make_config(tmp_path, "watch.select=frequency", "evaluator.freq_epochs=1")
    assert reconcile(root, config, InstantLauncher()).num_done == 1
    assert states(root, config) == {"checkpoint-10": "skipped", "checkpoint-20": "done", "checkpoint-30": "skipped"}


def _train_on(root: Path, config: EvaluationConfig) -> None:
    """Save two more checkpoints, and have the watcher look at them more than once."""
    for step in (40, 50):
        make_checkpoint(root / f"checkpoint-{step}", fill=step)
    wait_until(lambda: len(make_evaluation(config).folder.marks()) == 5)
    time.sleep(0.6)


def test_a_final_one_is_held_while_it_is_evaluated_although_training_goes_on(root: Path, tmp_path: Path) -> None:
    config = make_config(tmp_path, "watch.every=100", "watch.final_after_s=0.5")
    is_held: list[bool] = []

    class Late(InstantLauncher):
        def launch(self, order: EvaluationOrder):
            if not self.orders:
                _train_on(root, config)
                is_held.append(Path(order.config.actor.pinned_path or "").is_dir())
            return super().launch(order)

    reconciler = Reconciler(root, [make_evaluation(config)], Late())
    with watching(reconciler):
        wait_until(lambda: states(root, config).get("checkpoint-30") == "done")
    assert is_held == [True]


def test_a_final_one_is_held_while_its_weights_are_read_although_training_goes_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path, "watch.every=100", "watch.final_after_s=0.5")
    num_read = 0

    def slowly(report: CheckpointReport, *, cache_file: Path) -> str:
        nonlocal num_read
        num_read += 1
        if num_read == 1:
            _train_on(root, config)
        return digest_checkpoint(report, cache_file=cache_file)

    monkeypatch.setattr("tasks.checkpoint.resolution.digest_checkpoint", slowly)
    reconciler = Reconciler(root, [make_evaluation(config)], InstantLauncher())
    with watching(reconciler):
        wait_until(lambda: states(root, config).get("checkpoint-50") == "done")
    assert states(root, config)["checkpoint-30"] == "skipped", "it has not vanished"


@pytest.mark.parametrize("override", ["engine.stand_in=null", "engine.stand_in={accuracy: 0.9}"])
def test_made_up_answers_are_no_evaluation_of_a_model(tmp_path: Path, override: str) -> None:
    assert evaluation_key(make_config(tmp_path, override)) != evaluation_key(make_config(tmp_path))


@pytest.mark.parametrize(
    "override", ["rollout.backend=vllm:d4", "scheduler.type=slurm", "watch.every=7", "oom.shrink=false", "actor.path=x"]
)
def test_who_launches_makes_no_other_evaluation(tmp_path: Path, override: str) -> None:
    assert evaluation_key(make_config(tmp_path, override)) == evaluation_key(make_config(tmp_path))


@pytest.mark.parametrize(
    "override", ["seed=2", "gconfig.max_new_tokens=7", "valid_dataset.limit=3", "trial_name=t2", "actor.dtype=float32"]
)
def test_what_decides_samples_makes_another_evaluation(tmp_path: Path, override: str) -> None:
    assert evaluation_key(make_config(tmp_path, override)) != evaluation_key(make_config(tmp_path))


def test_it_goes_on_until_it_is_stopped_and_sees_what_comes(root: Path, tmp_path: Path) -> None:
    config, launcher = make_config(tmp_path), InstantLauncher()
    reconciler = Reconciler(root, [make_evaluation(config)], launcher)
    with watching(reconciler):
        for step in (40, 50):
            make_checkpoint(root / f"checkpoint-{step}", fill=step)
            name = f"checkpoint-{step}"
            wait_until(lambda name=name: states(root, config).get(name) == "done")
        wait_until(lambda: set(states(root, config).values()) == {"done"})  # the newest came first
    assert len(launcher.orders) == 5


def test_once_waits_for_what_has_to_rest_and_not_for_a_trainer_that_goes_on(tmp_path: Path) -> None:
    root, config = tmp_path / "ck", make_config(tmp_path, "watch.settle_s=1.5", "watch.poll_s=60")
    half = make_checkpoint(root / "half")
    (half / "config.json").unlink()
    make_checkpoint(root / "final")
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(0.2):
            (half / "rng_state.pth").write_bytes(b"x")

    trainer = threading.Thread(target=go_on)
    trainer.start()
    began = time.monotonic()
    try:
        outcome = reconcile(root, config, InstantLauncher())
    finally:
        ended.set()
        trainer.join()
    assert (outcome.num_done, outcome.num_unusable) == (1, 0), "it may still become whole"
    assert time.monotonic() - began < 30
    outcome = reconcile(root, config, InstantLauncher())
    assert (outcome.num_done, outcome.num_unusable) == (0, 1)


def test_folders_with_hostile_names_are_evaluated_like_others(tmp_path: Path) -> None:
    root = tmp_path / "ck ${x} it's $(touch y)"
    for name in ('it\'s a\n"model"; $(rm -rf x) ${actor.path}', "-rf", "#1"):
        make_checkpoint(root / name, fill=len(name))
    config, launcher = make_config(tmp_path), InstantLauncher()
    assert reconcile(root, config, launcher).num_done == 3
    assert {Path(run["checkpoint"]).parent for run in published_runs(config)} == {root}


def test_a_watch_folder_that_was_never_used_is_empty(tmp_path: Path) -> None:
    assert WatchFolder(path=tmp_path / "none").marks() == set()
