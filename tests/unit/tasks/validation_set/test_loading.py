"""What the checks of the command have loaded is used as it is, unless the checkpoint was replaced since."""

import json
from pathlib import Path

import pytest

from schemas.chat import ChatConfig
from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from schemas.errors import CheckpointError, ConfigError, DatasetError
from schemas.prompt import PromptConfig
from schemas.validation_set import ValidationSet
from tasks.validation_set.loading import check_validation_set, load_validation_set
from tests.support.chat_folders import make_family


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


def report_on(folder: Path, context_length: int = 512) -> CheckpointReport:
    return CheckpointReport(
        path=folder,
        status="complete",
        layout="huggingface",
        global_step=None,
        problems=(),
        context_length=context_length,
    )


def load(config: EvaluationConfig, folder: Path, *, context_length: int = 512) -> ValidationSet:
    return load_validation_set(config, report_on(folder, context_length), folder)


def test_a_checked_set_is_not_loaded_again(config: EvaluationConfig, folder: Path) -> None:
    check_validation_set(config, report_on(folder), folder)
    Path(config.valid_dataset.path).unlink()
    assert load(config, folder).prompts.table.num_rows == 3


def test_a_checked_set_serves_one_evaluation(config: EvaluationConfig, folder: Path) -> None:
    check_validation_set(config, report_on(folder), folder)
    load(config, folder)
    Path(config.valid_dataset.path).unlink()
    with pytest.raises(DatasetError, match=r"data\.jsonl"):
        load(config, folder)


def test_another_configuration_is_loaded_for_itself(config: EvaluationConfig, folder: Path) -> None:
    check_validation_set(config, report_on(folder), folder)
    limited = config.model_copy(update={"valid_dataset": config.valid_dataset.model_copy(update={"limit": 2})})
    assert load(limited, folder).prompts.table.num_rows == 2


def test_a_changed_template_is_rendered_anew(config: EvaluationConfig, folder: Path) -> None:
    check_validation_set(config, report_on(folder), folder)
    (folder / "chat_template.jinja").write_text("{% for message in messages %}Q: {{ message.content }}{% endfor %}")
    assert str(load(config, folder).prompts.table["prompt"][0]).startswith("Q: What is 0 + 1?")


def test_what_the_template_renders_with_is_told_and_makes_another_prompt(
    config: EvaluationConfig, tmp_path: Path
) -> None:
    qwen = make_family("qwen", tmp_path / "qwen")
    unset = load(config, qwen)
    assert unset.notes[-1] == (
        "the chat template takes enable_thinking, which is not set: it renders as with true "
        "(chat.template_kwargs.enable_thinking)"
    )
    off = config.model_copy(update={"chat": ChatConfig(template_kwargs={"enable_thinking": False})})
    without = load(off, qwen)
    assert without.notes[-1] == "the chat template renders with enable_thinking false (chat.template_kwargs)"
    hashes = [[item.prompt_hash for item in each.prompts.items] for each in (unset, without)]
    assert not set(hashes[0]) & set(hashes[1])
    assert str(without.prompts.table["prompt"][0]).endswith("<think>\n\n</think>\n\n")


def test_prompts_can_be_text_without_turns_or_have_a_template_of_their_own(
    config: EvaluationConfig, folder: Path
) -> None:
    def first_prompt(**prompt: str) -> str:
        loaded = load(config.model_copy(update={"prompt": PromptConfig.model_validate(prompt)}), folder)
        assert "prompt." in loaded.notes[-1]
        return str(loaded.prompts.table["prompt"][0])

    question = first_prompt(format="completion")
    assert question.startswith("What is 0 + 1?")
    assert first_prompt(format="completion", template="Q: {{ question }}\nA:") == f"Q: {question}\nA:"
    assert (
        first_prompt(template="{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}") == f"[user]{question}"
    )


def test_a_shorter_context_is_judged_anew(config: EvaluationConfig, folder: Path) -> None:
    longest = load(config, folder).prompts.longest_prompt_tokens
    check_validation_set(config, report_on(folder), folder)
    with pytest.raises(DatasetError, match="none of the 3 items"):
        load(config, folder, context_length=longest)


def test_a_stop_token_that_the_model_cannot_make_is_rejected(config: EvaluationConfig, folder: Path) -> None:
    stopping = config.model_copy(update={"gconfig": config.gconfig.model_copy(update={"stop_token_ids": (3, 99)})})
    report = report_on(folder).model_copy(update={"num_embeddings": 99})
    with pytest.raises(ConfigError, match=r"gconfig.stop_token_ids holds 99, and the model's embedding has 99 rows"):
        load_validation_set(stopping, report, folder)


def test_what_is_not_asked_is_told_once(
    config: EvaluationConfig, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Path(config.valid_dataset.path).open("a") as data:
        data.write(json.dumps({"question": "Why? " * 200, "answer": "#### 1"}) + "\n")
    check_validation_set(config, report_on(folder), folder)
    assert "is not asked" not in caplog.text
    load(config, folder)
    assert "is not asked" in caplog.text


def test_a_reward_function_gets_the_row(config: EvaluationConfig, folder: Path) -> None:
    own = config.model_copy(update={"reward_fn": "tests.support.rewards.score"})
    table = load(own, folder).prompts.table
    assert table["grader"].to_pylist() == ["function"] * 3
    data = json.loads(str(table["grader_data"][1]))
    assert data["question"] == "What is 1 + 1?"
    assert data["answer"] == "It is. #### 2"
    assert [message["role"] for message in data["messages"]] == ["user"]


def test_the_grader_does_not_change_the_version(config: EvaluationConfig, folder: Path) -> None:
    own = config.model_copy(update={"reward_fn": "tests.support.rewards.score"})
    assert load(own, folder).version == load(config, folder).version


def test_a_reward_function_that_is_not_there_is_refused(config: EvaluationConfig, folder: Path) -> None:
    own = config.model_copy(update={"reward_fn": "tests.support.rewards.no_such_function"})
    with pytest.raises(ConfigError, match="no_such_function"):
        load(own, folder)


@pytest.mark.parametrize(
    ("media_token_ids", "expected"), [((32000,), r"^LlavaForConditionalGeneration takes images"), (None, r"^/")]
)
def test_a_template_that_demands_images_is_refused_by_the_architectures_name(
    config: EvaluationConfig, folder: Path, media_token_ids: tuple[int, ...] | None, expected: str
) -> None:
    (folder / "chat_template.jinja").write_text("{{ raise_exception('an image is needed') }}")
    changes = {"architecture": "LlavaForConditionalGeneration", "media_token_ids": media_token_ids}
    with pytest.raises(CheckpointError, match=rf"{expected}.*an image is needed"):
        load_validation_set(config, report_on(folder).model_copy(update=changes), folder)
