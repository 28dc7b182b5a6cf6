"""The trainer's side in a trainer's environment: transformers' Trainer, ranks of torch.distributed, the example."""

import json
import subprocess
from pathlib import Path

import pytest

from infra.checkpoints import inspect_checkpoint
from infra.tokenizer import ChatTokenizer
from infra.trainer.announcements import read_announcements
from schemas.dataset import ChatMessage
from tests.support.engine_environment import ENGINE_PYTHON, ROOT, engine_process_environment, require_engine

pytestmark = pytest.mark.needs_engine


@pytest.fixture(autouse=True)
def _engine() -> None:
    require_engine()


def train(script: str, *arguments: str) -> None:
    done = subprocess.run(
        [str(ENGINE_PYTHON), script, *arguments],
        cwd=ROOT,
        env={name: value for name, value in engine_process_environment().items() if name != "RANK"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_callback_has_transformers_save_and_announces_it(tmp_path: Path) -> None:
    train("tests/support/training_run.py", "trainer", str(tmp_path))
    announced = read_announcements(tmp_path)
    assert [(one.path, one.global_step) for one in announced] == [
        (str(tmp_path / f"checkpoint-{step}"), step) for step in (2, 4, 6)
    ]
    reports = [inspect_checkpoint(one.path) for one in announced]
    assert [(report.status, report.global_step) for report in reports] == [("complete", step) for step in (2, 4, 6)]
    train("tests/support/training_run.py", "resumed", str(tmp_path))
    assert [one.global_step for one in read_announcements(tmp_path)] == [2, 4, 6, 10, 12]


def test_ranks_whose_clocks_differ_evaluate_at_the_same_steps_and_one_speaks(tmp_path: Path) -> None:
    train("tests/support/training_run.py", "ranks", str(tmp_path))
    found = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    assert found == [[2, 5, 8], [2, 5, 8]]  # by rank 1, whose clock is the faster: 4 s per step
    assert [one.global_step for one in read_announcements(tmp_path)] == [11, 14, 17]


def test_the_example_saves_checkpoints_that_can_be_evaluated(tmp_path: Path) -> None:
    train("examples/train_tiny.py", str(tmp_path), "--steps", "100")
    [announced] = read_announcements(tmp_path)
    assert announced.path == str(tmp_path / "checkpoint-100")
    assert inspect_checkpoint(announced.path).status == "complete"
    tokenizer = ChatTokenizer.open(Path(announced.path))
    question = "State the final answer to the following arithmetic problem: 12 - 34 ="
    [token_ids] = tokenizer.encode([tokenizer.render([ChatMessage(role="user", content=question)])])
    assert len(token_ids) == len(["<user>", "the instruction", *"12-34=", "<assistant>"])
    assert 1 not in token_ids  # <unk>
