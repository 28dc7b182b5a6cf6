"""What the checks of the command have loaded is used as it is, unless the checkpoint was replaced since."""

import json
from pathlib import Path

import pytest

from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from schemas.errors import DatasetError
from tasks.validation_set.loading import ValidationSet, load_validation_set
from tests.unit.infra.tokenizer.chat_folders import make_family


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_family("llama", tmp_path / "model")


@pytest.fixture
def config(tmp_path: Path) -> EvaluationConfig:
    rows = [{"question": f"What is {n} + 1?", "answer": f"It is. #### {n + 1}"} for n in range(3)]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return EvaluationConfig.model_validate(
        {"actor": {"path": "model"}, "valid_dataset": {"path": str(data)}, "gconfig": {"max_new_tokens": 8}}
    )


def load(
    config: EvaluationConfig, folder: Path, *, context_length: int = 512, checked: ValidationSet | None = None
) -> ValidationSet:
    report = CheckpointReport(
        path=folder,
        status="complete",
        layout="huggingface",
        global_step=None,
        problems=(),
        context_length=context_length,
    )
    return load_validation_set(config, report, folder, checked=checked)


def test_a_checked_set_is_not_loaded_again(config: EvaluationConfig, folder: Path) -> None:
    checked = load(config, folder)
    Path(config.valid_dataset.path).unlink()
    assert load(config, folder, checked=checked) is checked


def test_a_changed_template_is_rendered_anew(config: EvaluationConfig, folder: Path) -> None:
    checked = load(config, folder)
    (folder / "chat_template.jinja").write_text("{% for message in messages %}Q: {{ message.content }}{% endfor %}")
    again = load(config, folder, checked=checked)
    assert again.prompts.table["prompt"][0].as_py().startswith("Q: What is 0 + 1?")
    assert not checked.prompts.table["prompt"][0].as_py().startswith("Q: ")


def test_a_shorter_context_is_judged_anew(config: EvaluationConfig, folder: Path) -> None:
    checked = load(config, folder)
    assert checked.prompts.refused == ()
    with pytest.raises(DatasetError, match="none of the 3 items"):
        load(config, folder, context_length=checked.prompts.longest_prompt_tokens, checked=checked)


def test_what_is_not_asked_is_told_each_time(
    config: EvaluationConfig, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Path(config.valid_dataset.path).open("a") as data:
        data.write(json.dumps({"question": "Why? " * 200, "answer": "#### 1"}) + "\n")
    checked = load(config, folder)
    assert len(checked.prompts.refused) == 1
    caplog.clear()
    load(config, folder, checked=checked)
    assert "is not asked" in caplog.text
