"""Prompts and token ids equal those of transformers, with exactly one BOS, and depend on nothing else."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.tokenizer import ChatTokenizer, renderer
from schemas.dataset import ChatMessage
from schemas.errors import ChatTemplateError, CheckpointError
from tests.support.chat_folders import (
    CHATML,
    FAMILIES,
    LLAMA,
    byte_level,
    make_family,
    prepend_bos,
    save,
)

ROOT = Path(__file__).parents[4]
DEMO = ROOT / ".demo" / "smollm2-135m-instruct"
CONVERSATIONS = (
    (ChatMessage(role="user", content="What is 12 + 30?"),),
    (
        ChatMessage(role="system", content="  Answer inside a box.\n"),
        ChatMessage(role="user", content="Mira has 3 apples <b>&\n\n数学 → λ \U0001f600?  "),
    ),
    (
        ChatMessage(role="user", content="1+1"),
        ChatMessage(role="assistant", content="<think>\nhm\n</think>\n\n2"),
        ChatMessage(role="user", content="and 2+2?"),
    ),
)


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("families")
    return {name: make_family(name, root / name) for name in FAMILIES}


def _reference(folder: Path, messages: Sequence[ChatMessage]) -> tuple[str, list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    turns = [message.model_dump() for message in messages]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)["input_ids"]
    return text, ids


def _ours(folder: Path, messages: Sequence[ChatMessage]) -> tuple[str, list[int]]:
    tokenizer = ChatTokenizer.open(folder)
    text = tokenizer.render(messages)
    return text, list(tokenizer.encode([text])[0])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_every_family_equals_transformers(
    name: str, messages: tuple[ChatMessage, ...], families: dict[str, Path]
) -> None:
    if name == "gemma" and messages[0].role == "system":
        with pytest.raises(CheckpointError, match=r"roles \[system, user\].*System role not supported"):
            _ours(families[name], messages)
        return
    assert _ours(families[name], messages) == _reference(families[name], messages)


@pytest.mark.skipif(not DEMO.is_dir(), reason="needs the demo checkpoint (make setup)")
@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_the_demo_checkpoint_equals_transformers(messages: tuple[ChatMessage, ...]) -> None:
    assert _ours(DEMO, messages) == _reference(DEMO, messages)


@pytest.fixture(scope="module")
def tokenizers(families: dict[str, Path]) -> dict[str, ChatTokenizer]:
    return {name: ChatTokenizer.open(families[name]) for name in ("llama", "mistral", "gemma", "deepseek")}


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60), st.sampled_from(("llama", "mistral", "gemma", "deepseek")))
def test_a_prompt_starts_with_exactly_one_bos_whatever_the_text(
    tokenizers: dict[str, ChatTokenizer], text: str, name: str
) -> None:
    tokenizer = tokenizers[name]
    ids = tokenizer.encode([tokenizer.render((ChatMessage(role="user", content=text),))])[0]
    assert ids[0] == tokenizer.bos_token_id
    assert ids[1] != tokenizer.bos_token_id


@pytest.mark.parametrize(
    ("post_processor", "add_bos_token", "template_bos", "expected"),
    [
        (True, None, 0, 1), (True, None, 1, 1), (True, None, 2, 1), (False, True, 0, 1), (False, True, 1, 1),
        (True, False, 0, 0), (True, False, 1, 1), (False, None, 0, 0), (False, None, 1, 1), (False, False, 3, 1),
    ],
)  # fmt: skip
def test_bos_is_never_doubled_and_never_lost(
    tmp_path: Path, post_processor: bool, add_bos_token: bool | None, template_bos: int, expected: int
) -> None:
    tokenizer = byte_level(["<s>", "</s>"])
    if post_processor:
        prepend_bos(tokenizer, "<s>")
    config: dict[str, object] = {"bos_token": "<s>", "eos_token": "</s>"}
    if add_bos_token is not None:
        config["add_bos_token"] = add_bos_token
    template = "{{ bos_token }}" * template_bos + "{{ messages[0].content }}"
    opened = ChatTokenizer.open(save(tmp_path, tokenizer, config), chat_template=template)
    ids = list(opened.encode([opened.render(CONVERSATIONS[0])])[0])
    assert ids.count(opened.bos_token_id or 0) == expected
    assert opened.decode(ids) == "<s>" * expected + "What is 12 + 30?"


def test_a_batch_equals_its_prompts_one_by_one(families: dict[str, Path]) -> None:
    tokenizer = ChatTokenizer.open(families["llama"])
    texts = [tokenizer.render(messages) for messages in CONVERSATIONS] * 5
    assert tokenizer.encode(texts) == [tokenizer.encode([text])[0] for text in texts]
    assert max(len(ids) for ids in tokenizer.encode(texts)) > 8, "the truncation saved in tokenizer.json is off"


def test_the_date_of_a_prompt_is_a_parameter_and_not_today(families: dict[str, Path]) -> None:
    message = CONVERSATIONS[0]
    assert "Today Date: 26 Jul 2024" in ChatTokenizer.open(families["llama"], chat_template=LLAMA).render(message)
    dated = ChatTokenizer.open(families["llama"], chat_template=LLAMA, today=date(2031, 2, 1))
    assert "Today Date: 01 Feb 2031" in dated.render(message)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_text_has_more_characters_than_its_tokens_can_hold(families: dict[str, Path], family: str) -> None:
    tokenizer = ChatTokenizer.open(families[family])
    for text in (" " * 500, "Answer " * 100, "12 + 30?" * 50, "数学" * 100, "assistant\n" * 50):
        assert len(text) <= len(tokenizer.encode([text])[0]) * tokenizer.longest_token_chars


def test_special_tokens_inside_a_message_are_found(families: dict[str, Path]) -> None:
    tokenizer = ChatTokenizer.open(families["chatml"])
    assert tokenizer.special_tokens_in("a <|im_end|>\n<|im_start|>system b <think>") == ("<|im_end|>", "<|im_start|>")
    assert tokenizer.special_tokens_in("an honest problem < | im_end") == ()


def test_a_special_token_that_only_the_config_names_is_one_token_as_in_transformers(tmp_path: Path) -> None:
    tokenizer = byte_level([], ())
    word = max(tokenizer.get_vocab(), key=lambda token: (token.isascii(), len(token)))
    config = {"eos_token": word, "chat_template": "{{ messages[0].content }} " + f"x{word}x"}
    folder = save(tmp_path, tokenizer, config)
    assert _ours(folder, CONVERSATIONS[0]) == _reference(folder, CONVERSATIONS[0])


def test_the_template_is_found_in_each_of_its_places(families: dict[str, Path], tmp_path: Path) -> None:
    config = {"eos_token": "<|im_end|>", "chat_template": "from the config: {{ messages[0].content }}"}
    folder = save(tmp_path, byte_level(["<|im_end|>"]), config)
    question = CONVERSATIONS[0][0].content
    assert ChatTokenizer.open(folder).render(CONVERSATIONS[0]) == f"from the config: {question}"
    (folder / "chat_templates").mkdir()
    (folder / "chat_templates" / "rag.jinja").write_text("rag")
    with pytest.raises(CheckpointError, match="rag and none is called default"):
        ChatTokenizer.open(folder)
    (folder / "chat_templates" / "default.jinja").write_text("the default: {{ messages[0].content }}")
    assert ChatTokenizer.open(folder).render(CONVERSATIONS[0]) == f"the default: {question}"
    (folder / "chat_template.jinja").write_text("the file: {{ messages[0].content }}")
    assert ChatTokenizer.open(folder).render(CONVERSATIONS[0]) == f"the file: {question}"


def test_no_template_names_the_files_and_the_way_out(tmp_path: Path) -> None:
    folder = save(tmp_path, byte_level(["<|im_end|>"]), {"eos_token": "<|im_end|>"})
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json.*chat_template\.jinja.*tokenizer_path"):
        ChatTokenizer.open(folder)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for %}", "does not parse"),
        ("line\n{{ oops", "line 2: the chat template does not parse"),
        ("{{ raise_exception('no such turn') }}", "no such turn"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% for i in range(10**9) %}x{% endfor %}", "OverflowError"),
        ("{{ 'x' * 10 ** 10 }}", "MemoryError"),
        ("{{ (messages[0].content * 10 ** 6) * 10 ** 6 }}", "MemoryError"),
        ("{{ 'x' * 70000000 }}", "characters, above"),
        ("{% set n = namespace(t='x') %}{% for i in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}", "MemoryError"),
    ],
)
def test_a_broken_or_hostile_template_is_an_error_of_the_checkpoint(
    families: dict[str, Path], template: str, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        ChatTokenizer.open(families["chatml"], chat_template=template).render(CONVERSATIONS[0])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", r"\[user\]: it was ended"),
        ("{{ 10 ** (10 ** 9) % 7 }}", "does not parse .it was ended"),
    ],
)
def test_a_template_without_an_end_is_ended(
    families: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, template: str, message: str
) -> None:
    program = tmp_path / "rendering_process.py"
    text = Path(renderer.__file__).with_name(program.name).read_text("utf-8")
    program.write_text(text.replace("MAX_BATCH_S: Final = 15.0", "MAX_BATCH_S: Final = 0.5"), "utf-8")
    monkeypatch.setattr(renderer, "_PROGRAM", program)
    with pytest.raises(CheckpointError, match=message):
        ChatTokenizer.open(families["chatml"], chat_template=template).render([ChatMessage(role="user", content="a")])


def test_templates_render_where_jinja_is_outside_the_interpreters_own_folders(
    families: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As after `pip install --user`, `pip install --target` or a module of the cluster: Jinja is on PYTHONPATH."""
    own = Path(sys.executable).resolve()
    (tmp_path / "pyvenv.cfg").write_text(f"home = {own.parent}\ninclude-system-site-packages = false\n")
    bare = tmp_path / "bin" / "python"
    bare.parent.mkdir()
    bare.symlink_to(own)
    monkeypatch.setattr(sys, "executable", str(bare))
    monkeypatch.setenv("PYTHONPATH", str(Path(jinja2.__file__).parents[1]))
    with closing(ChatTokenizer.open(families["chatml"], chat_template="{{ messages[0].content }}")) as tokenizer:
        assert tokenizer.render([ChatMessage(role="user", content="found")]) == "found"


def test_many_and_long_conversations_arrive_whole_and_in_order(families: dict[str, Path]) -> None:
    with closing(ChatTokenizer.open(families["chatml"], chat_template="{{ messages[0].content }}")) as tokenizer:
        texts = [f"{number}\u2028\ud800" for number in range(3000)] + ["x" * 9_000_000, "y" * 9_000_000, "z"]
        assert tokenizer.render_all([[ChatMessage(role="user", content=text)] for text in texts]) == texts
        assert tokenizer.render_all([]) == []


def test_a_torn_tokenizer_file_is_an_error_of_the_checkpoint(tmp_path: Path) -> None:
    folder = make_family("chatml", tmp_path)
    whole = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: does not load"):
        ChatTokenizer.open(folder)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: not valid JSON"):
        ChatTokenizer.open(folder)


def test_a_folder_without_tokenizer_json_is_converted_by_transformers(tmp_path: Path) -> None:
    folder = make_family("chatml", tmp_path / "with")
    other = tmp_path / "without"
    other.mkdir()
    byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]).model.save(str(other))
    config = '{"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|im_end|>", "bos_token": "<|im_start|>"}'
    (other / "tokenizer_config.json").write_text(config)
    (other / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    assert _ours(other, CONVERSATIONS[0]) == _ours(folder, CONVERSATIONS[0])
    (other / "vocab.json").unlink()
    (other / "merges.txt").unlink()
    with pytest.raises(CheckpointError, match="tokenizer_path"):
        ChatTokenizer.open(other)


def test_the_fast_path_imports_neither_transformers_nor_torch(families: dict[str, Path]) -> None:
    code = (
        "import sys; from pathlib import Path; import infra.tokenizer\n"
        "print('tokenizers' in sys.modules or 'jinja2' in sys.modules)\n"
        "t = infra.tokenizer.ChatTokenizer.open(Path(sys.argv[1])); t.encode(['x'])\n"
        "print('transformers' in sys.modules or 'torch' in sys.modules)\n"
    )
    argv = [sys.executable, "-c", code, str(families["llama"])]
    done = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout.split() == ["False", "False"]


LLAVA = (
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' ' }}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
ONLY_PARTS = "{% for m in messages %}{{ m.role ~ ':' ~ m.content[0]['text'].strip() }}{% endfor %}"
EITHER = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{{ '<image>' if part.type == 'image' else part.text }}{% endfor %}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (LLAVA, "USER: What is 12 + 30? ASSISTANT:"),
        (ONLY_PARTS, "user:What is 12 + 30?"),
        (EITHER, "What is 12 + 30?"),
        ("{{ messages[-1].content | upper }}", "WHAT IS 12 + 30?"),
    ],
)
def test_a_template_that_reads_parts_is_given_parts(families: dict[str, Path], template: str, expected: str) -> None:
    with closing(ChatTokenizer.open(families["chatml"], chat_template=template)) as tokenizer:
        assert tokenizer.render(CONVERSATIONS[0]) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% for p in m.content if p.type == 'image' %}<image>{% endfor %}{% endfor %}",
        "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}assistant:",
        "{{ messages | length }}",
    ],
)
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_a_template_without_the_question_is_refused(
    families: dict[str, Path], template: str, conversation: Sequence[ChatMessage]
) -> None:
    with (
        closing(ChatTokenizer.open(families["chatml"], chat_template=template)) as tokenizer,
        pytest.raises(ChatTemplateError, match="without what the user says"),
    ):
        tokenizer.render(conversation)
