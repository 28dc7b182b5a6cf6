"""`MilepostCallback` for transformers' Trainer and every trainer made from it, TRL's among them.

Imported by training code alone, which has transformers.
"""

# ruff: noqa: ARG002 - a hook gets all arguments by name

from pathlib import Path
from typing import TYPE_CHECKING

from transformers.trainer_callback import TrainerCallback

from flows.evaluator import EvaluatorSettings
from infra.trainer.announcer import CheckpointAnnouncer, absolute_folder
from infra.trainer.frequency import Schedule

if TYPE_CHECKING:
    from transformers.trainer_callback import TrainerControl, TrainerState
    from transformers.training_args import TrainingArguments


class MilepostCallback(TrainerCallback):
    """Announces every checkpoint that the trainer saves; `milepost watch CONFIG OUTPUT_DIR` evaluates it elsewhere.

    Nothing of it makes training wait, and nothing that fails reaches training.
    """

    def __init__(self, config: EvaluatorSettings | None = None, *, posts_events: bool = False) -> None:
        """Take when there are to be checkpoints, and who is told.

        Args:
            config: A checkpoint is also saved whenever an evaluation falls due; with `save_strategy="no"` only then.
                None: the trainer saves when its own arguments say.
            posts_events: As for `CheckpointAnnouncer`.

        Raises:
            ConfigError: a frequency that is not positive.
        """
        self._schedule = None if config is None else Schedule(config, is_due_at_first=config.eval_before_train)
        self._posts_events = posts_events
        self._announcer: CheckpointAnnouncer | None = None
        self._saved_step: int | None = None

    def on_train_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **_: object
    ) -> None:
        """Learn where checkpoints are saved, and where a training that is resumed has come to."""
        root = absolute_folder(str(args.output_dir))
        if self._announcer is None or root != self._announcer.root:  # each has a thread, and its say at the end
            self._announcer = CheckpointAnnouncer(root, posts_events=self._posts_events)
        if self._schedule is not None and state.global_step:
            self._schedule.go_on_at(epochs=int(state.epoch or 0), steps=state.global_step)

    def on_step_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **_: object
    ) -> None:
        """Have a checkpoint saved when one is due after this step."""
        self._save_if_due(state, control, epochs=0, steps=1)

    def on_epoch_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **_: object
    ) -> None:
        """Have a checkpoint saved when one is due after this epoch."""
        self._save_if_due(state, control, epochs=1, steps=0)

    def on_save(self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **_: object) -> None:
        """Announce the checkpoint that has just been saved."""
        self._saved_step = state.global_step
        if self._announcer is not None:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            self._announcer.announce(folder, global_step=state.global_step)

    def _save_if_due(self, state: "TrainerState", control: "TrainerControl", *, epochs: int, steps: int) -> None:
        is_due = self._schedule is not None and self._schedule.is_due(epochs=epochs, steps=steps)
        # an epoch ends with a step, which may have been saved just before
        if is_due and state.global_step != self._saved_step:
            control.should_save = True
