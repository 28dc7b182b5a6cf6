"""What a template is given beside the conversation, and prompts that need no chat template."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from infra.tokenizer import ChatTokenizer
from schemas.chat import TemplateValue
from schemas.dataset import ChatMessage
from schemas.errors import CheckpointError, ConfigError
from tests.support.chat_folders import make_family

TemplateKwargs = dict[str, TemplateValue]

QUESTION = (ChatMessage(role="user", content="What is 12 + 30?"),)
CONVERSATIONS = (
    QUESTION,
    (ChatMessage(role="system", content="Add."), *QUESTION),
    (*QUESTION, ChatMessage(role="assistant", content="<think>\nhm\n</think>\n\n42"), *QUESTION),
)


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("families")
    return {name: make_family(name, root / name) for name in ("qwen", "llama", "mistral", "gemma")}


THINKING: TemplateKwargs = {"enable_thinking": False}


@pytest.mark.parametrize("kwargs", [{}, {"enable_thinking": True}, THINKING, {"enable_thinking": "yes"}])
def test_variables_reach_the_template_as_in_transformers(families: dict[str, Path], kwargs: TemplateKwargs) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(str(families["qwen"]), local_files_only=True)
    with closing(ChatTokenizer.open(families["qwen"], template_kwargs=kwargs)) as tokenizer:
        for messages in CONVERSATIONS:
            turns = [message.model_dump() for message in messages]
            expected = reference.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **kwargs)
            assert tokenizer.render(messages) == expected


@pytest.mark.parametrize(
    ("family", "kwargs", "words"),
    [
        ("qwen", {"enable_thinkng": False}, "it reads enable_thinking, rest, text; correct"),
        ("llama", THINKING, "it reads date_string; correct"),
        ("gemma", THINKING, "it reads none but the conversation; correct"),
    ],
)
def test_a_variable_that_the_template_does_not_read_is_refused(
    families: dict[str, Path], family: str, kwargs: TemplateKwargs, words: str
) -> None:
    with pytest.raises(ConfigError, match=rf"chat\.template_kwargs\.enable_think.* is False, .*{words}"):
        ChatTokenizer.open(families[family], template_kwargs=kwargs)


@pytest.mark.parametrize(
    ("template", "kwargs", "expected"),
    [
        (None, {}, True),
        (None, THINKING, None),
        ("{{ messages[0].content }}{% if enable_thinking %}<think>{% endif %}", {}, False),
        ("{{ messages[0].content }}{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}", {}, None),
        ("{{ messages[0].content }}{{ enable_thinking | default('') | length }}", {}, None),
        ("{{ messages[0].content }}", {}, None),
    ],
)
def test_the_default_of_a_flag_is_found_by_rendering(
    families: dict[str, Path], template: str | None, kwargs: TemplateKwargs, expected: bool | None
) -> None:
    with closing(ChatTokenizer.open(families["qwen"], chat_template=template, template_kwargs=kwargs)) as tokenizer:
        assert tokenizer.default_flag("enable_thinking", QUESTION) is expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (None, "What is 12 + 30?"),
        ("Question: {{ question }}\nAnswer:", "Question: What is 12 + 30?\nAnswer:"),
        ("{{ bos_token }}{% for m in messages %}{{ m.content | upper }}{% endfor %}", "<s>WHAT IS 12 + 30?"),
    ],
)
def test_a_completion_needs_no_chat_template(
    families: dict[str, Path], tmp_path: Path, template: str | None, expected: str
) -> None:
    folder = tmp_path / "base"
    shutil.copytree(families["mistral"], folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match=r"set prompt\.format=completion for a base model"):
        ChatTokenizer.open(folder)
    with pytest.raises(ConfigError, match=r"template_kwargs\.question is 'x'"):
        ChatTokenizer.open(folder, template_kwargs={"question": "x"}, is_completion=True)
    with closing(ChatTokenizer.open(folder, chat_template=template, is_completion=True)) as tokenizer:
        assert tokenizer.render(QUESTION) == expected
        (ids,) = tokenizer.encode([expected])
        assert ids.count(tokenizer.bos_token_id or 0) == 1
