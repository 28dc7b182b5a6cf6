"""Training in the engine environment, for test_training.py: `python training_run.py trainer|resumed|ranks FOLDER`."""

import json
import random
import sys
from multiprocessing import get_context
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.train_tiny import draw_batch, make_model, make_tokenizer
from flows.evaluator import CheckpointAnnouncer, Evaluator, EvaluatorConfig, FinetuneSpec


def run_trainer(folder: Path) -> None:
    """Six steps of transformers' Trainer, one epoch; a checkpoint after every two."""
    train(folder, EvaluatorConfig(freq_steps=2), num_epochs=1, resumed=False)


def run_resumed(folder: Path) -> None:
    """Another epoch after that; a checkpoint after every five steps and every second epoch."""
    train(folder, EvaluatorConfig(freq_steps=5, freq_epochs=2), num_epochs=2, resumed=True)


def train(folder: Path, config: EvaluatorConfig, *, num_epochs: int, resumed: bool) -> None:
    from transformers import Trainer, TrainingArguments

    from flows.trainer_callback import MilepostCallback

    tokenizer = make_tokenizer()
    batch = draw_batch(tokenizer, random.Random(0))
    rows = [{name: values[row] for name, values in batch.items()} for row in range(12)]
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        num_train_epochs=num_epochs,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    callback = MilepostCallback(config)
    Trainer(
        make_model(len(tokenizer)), arguments, train_dataset=rows, processing_class=tokenizer, callbacks=[callback]
    ).train(resume_from_checkpoint=resumed)


def run_rank(rank: int, folder: Path) -> None:
    """One of two ranks whose clocks run apart: what falls due by time has to fall due on both."""
    for step in (11, 14, 17):
        (folder / f"checkpoint-{step}").mkdir(exist_ok=True)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    steps = iter(range(1_000))
    evaluator = Evaluator(
        EvaluatorConfig(freq_secs=10),
        FinetuneSpec(1, 20, 1),
        announcer=CheckpointAnnouncer(folder),
        clock=lambda: (3.0 + rank) * next(steps),
    )
    found: list[int] = []
    for step in range(10):
        evaluator.evaluate(lambda now=step: found.append(now), 0, step, step)
    for step in range(10, 20):
        evaluator.evaluate(None, 0, step, step)
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


def run_ranks(folder: Path) -> None:
    """Both ranks at once."""
    context = get_context("spawn")
    ranks = [context.Process(target=run_rank, args=(rank, folder)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    sys.exit(any(process.exitcode for process in ranks))


if __name__ == "__main__":
    {"trainer": run_trainer, "resumed": run_resumed, "ranks": run_ranks}[sys.argv[1]](Path(sys.argv[2]))
