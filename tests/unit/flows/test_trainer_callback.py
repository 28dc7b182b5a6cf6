"""The callback under transformers' own CallbackHandler: when it has checkpoints saved, and what it announces."""

import shutil
import threading
import time
from pathlib import Path

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback

from flows.evaluator import EvaluatorConfig
from flows.trainer_callback import MilepostCallback
from infra.trainer.announcements import read_announcements

STEPS_PER_EPOCH = 5
PATIENCE_S = 120.0


def train(
    callback: MilepostCallback, out: Path, *, num_steps: int, save_strategy: str = "no", resumed_at: int = 0
) -> list[int]:
    """Call the hooks in the order of Trainer's loop; return the steps that were saved."""
    arguments = TrainingArguments(
        output_dir=str(out), save_strategy=save_strategy, save_steps=4, report_to=[], use_cpu=True
    )
    state, control = TrainerState(max_steps=num_steps, save_steps=4), TrainerControl()
    handler = CallbackHandler([DefaultFlowCallback, callback], None, None, None, None)
    saved: list[int] = []
    state.global_step, state.epoch = resumed_at, resumed_at / STEPS_PER_EPOCH  # as Trainer reads them

    def save_if_asked() -> None:
        if control.should_save:
            saved.append(state.global_step)
            (out / f"checkpoint-{state.global_step}").mkdir()
            handler.on_save(arguments, state, control)

    handler.on_train_begin(arguments, state, control)
    for _ in range(num_steps - resumed_at):
        handler.on_step_begin(arguments, state, control)
        state.global_step += 1
        handler.on_step_end(arguments, state, control)
        save_if_asked()
        if state.global_step % STEPS_PER_EPOCH == 0:
            handler.on_epoch_end(arguments, state, control)
            save_if_asked()
    return saved


def announced(out: Path, number: int) -> list[tuple[str, int | None]]:
    limit = time.monotonic() + PATIENCE_S
    while len(read_announcements(out)) < number and time.monotonic() < limit:
        time.sleep(0.01)
    return [(one.path, one.global_step) for one in read_announcements(out)]


@pytest.fixture(autouse=True)
def _first_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)


def test_what_the_trainer_saves_is_announced(tmp_path: Path) -> None:
    assert train(MilepostCallback(), tmp_path, num_steps=9, save_strategy="steps") == [4, 8, 9]
    assert announced(tmp_path, 3) == [(str(tmp_path / f"checkpoint-{step}"), step) for step in (4, 8, 9)]


def test_training_again_announces_by_the_same_thread(tmp_path: Path) -> None:
    callback = MilepostCallback()
    before = set(threading.enumerate())
    train(callback, tmp_path, num_steps=4, save_strategy="steps")
    shutil.rmtree(tmp_path / "checkpoint-4")
    train(callback, tmp_path, num_steps=4, save_strategy="steps")
    assert len(set(threading.enumerate()) - before) == 1


def test_a_checkpoint_is_saved_when_an_evaluation_falls_due(tmp_path: Path) -> None:
    assert train(MilepostCallback(EvaluatorConfig(freq_steps=3)), tmp_path, num_steps=12) == [3, 6, 9, 12]
    assert [step for _, step in announced(tmp_path, 4)] == [3, 6, 9, 12]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (EvaluatorConfig(freq_epochs=1), [5, 10]),
        (EvaluatorConfig(freq_epochs=1, freq_steps=5), [5, 10]),
        (EvaluatorConfig(freq_epochs=1, freq_steps=4), [4, 5, 8, 10]),
        (EvaluatorConfig(freq_epochs=2, eval_before_train=True), [1, 10]),
        (EvaluatorConfig(), []),
    ],
)
def test_epochs_and_steps_count_apart_and_no_step_is_saved_twice(
    tmp_path: Path, config: EvaluatorConfig, expected: list[int]
) -> None:
    assert train(MilepostCallback(config), tmp_path, num_steps=10) == expected


@pytest.mark.parametrize(
    ("config", "resumed_at", "expected"),
    [
        (EvaluatorConfig(freq_steps=4), 6, [8, 12]),
        (EvaluatorConfig(freq_steps=4), 8, [12]),
        (EvaluatorConfig(freq_epochs=2), 6, [10]),
        (EvaluatorConfig(freq_epochs=2), 5, [10]),
        (EvaluatorConfig(freq_epochs=1, eval_before_train=True), 1, [5, 10]),
    ],
)
def test_a_resumed_training_saves_at_the_steps_of_one_that_was_not_interrupted(
    tmp_path: Path, config: EvaluatorConfig, resumed_at: int, expected: list[int]
) -> None:
    assert train(MilepostCallback(config), tmp_path, num_steps=12, resumed_at=resumed_at) == expected
