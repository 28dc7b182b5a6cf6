"""Few-shot prompts: which examples an item gets, and how they stand before its question."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from schemas.dataset import ChatMessage, EvalItem
from schemas.errors import ConfigError, DatasetError
from tasks.validation_set.few_shot import Examples, answer_of
from tasks.validation_set.loading import load_validation_set
from tests.support.chat_folders import make_family


def item(number: int, **fields: str) -> EvalItem:
    question = (ChatMessage(role="user", content=f"What is {number} + 1?"),)
    return EvalItem(item_id=f"item-{number}", messages=question, gold=str(number + 1), **fields)


ITEMS = [item(number) for number in range(12)]


@given(order=st.permutations(ITEMS), asked=st.integers(0, 20), num_shots=st.integers(1, 11), seed=st.integers(0, 3))
def test_examples_follow_from_the_item_alone(order: Sequence[EvalItem], asked: int, num_shots: int, seed: int) -> None:
    shots = Examples(order, num_shots=num_shots, seed=seed).choose(item(asked))
    assert shots == Examples(ITEMS, num_shots=num_shots, seed=seed).choose(item(asked))
    assert len({shot.item_id for shot in shots}) == num_shots
    assert f"item-{asked}" not in {shot.item_id for shot in shots}


def test_the_seed_and_the_item_decide_and_every_example_is_drawn() -> None:
    def drawn(seed: int) -> list[list[str]]:
        examples = Examples(ITEMS, num_shots=3, seed=seed)
        return [[shot.item_id for shot in examples.choose(item(asked))] for asked in range(100, 160)]

    assert drawn(0) != drawn(1)
    assert {name for names in drawn(0) for name in names} == {each.item_id for each in ITEMS}


def test_a_question_is_not_its_own_example_under_another_name() -> None:
    twin = item(3).model_copy(update={"item_id": "other name"})
    examples = Examples([*ITEMS[:4], twin], num_shots=3, seed=0)
    assert len(examples) == 4
    assert {shot.item_id for shot in examples.choose(item(3))} == {"item-0", "item-1", "item-2"}
    with pytest.raises(ConfigError, match=r"few_shot\.n is 4, and there are 3 examples other than item item-3 itself"):
        Examples(ITEMS[:4], num_shots=4, seed=0).choose(item(3))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "6"),
        ({"solution": "5 + 1 = 6"}, "5 + 1 = 6"),
        ({"prompt_suffix": "\nPut it within \\boxed{}."}, "\\boxed{6}"),
        ({"prompt_suffix": "\nPut it within \\boxed{}.", "solution": "5 + 1 = 6"}, "5 + 1 = 6\n\\boxed{6}"),
        ({"prompt_suffix": "\nPut it within \\boxed{}.", "solution": "So \\boxed{6}."}, "So \\boxed{6}."),
    ],
)
def test_an_example_answers_as_its_prompt_asks(fields: dict[str, str], expected: str) -> None:
    assert answer_of(item(5, **fields)) == expected


def prompts_of(tmp_path: Path, **sections: Any) -> list[str]:
    folder = tmp_path / "model"
    if not folder.exists():
        make_family("chatml", folder)
    dataset = {"path": str(tmp_path / "test.jsonl"), "prompt_suffix": "", "columns": {"prompt": "q", "gold": "a"}}
    config = EvaluationConfig.model_validate(
        {"actor": {"path": "model"}, "gconfig": {"max_new_tokens": 8}, **sections}
        | {"valid_dataset": dataset | sections.get("valid_dataset", {})}
    )
    report = CheckpointReport(
        path=folder, status="complete", layout="huggingface", global_step=None, problems=(), context_length=4096
    )
    return load_validation_set(config, report, folder).prompts.table["prompt"].to_pylist()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, numbers in (("test", range(3)), ("train", range(10, 14))):
        rows = [json.dumps({"q": f"What is {number} + 1?", "a": number + 1}) for number in numbers]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    return tmp_path


def test_examples_are_turns_of_a_conversation(data: Path) -> None:
    shots = {"n": 2, "path": str(data / "train.jsonl")}
    prompts = prompts_of(data, prompt={"few_shot": shots}, valid_dataset={"system_prompt": "Add."})
    for number, prompt in enumerate(prompts):
        turns = [turn.partition("\n")[::2] for turn in prompt.split("<|im_start|>")[1:]]
        assert [role for role, _ in turns] == ["system", *["user", "assistant"] * 3]
        assert [text for role, text in turns if role == "user"][-1].startswith(f"What is {number} + 1?")
        asked = [int(text.split()[2]) for role, text in turns[1:5] if role == "user"]
        answered = [int(text.split("<")[0]) for role, text in turns[1:5] if role == "assistant"]
        assert answered == [each + 1 for each in asked]
        assert set(asked) <= {10, 11, 12, 13}


def test_examples_of_a_completion_are_its_own_prompt_with_the_answer(data: Path) -> None:
    template = "Question: {{ question }}\nAnswer:"
    prompt = {"format": "completion", "template": template, "few_shot": {"n": 2}}
    prompts = prompts_of(data, prompt=prompt)
    zero = {f"Question: What is {number} + 1?\nAnswer: {number + 1}\n\n" for number in (1, 2)}
    first, second = sorted(zero)
    question = "Question: What is 0 + 1?\nAnswer:"
    assert prompts[0] in {first + second + question, second + first + question}
    limited = prompts_of(data, prompt=prompt, valid_dataset={"limit": 1})
    assert limited == prompts[:1], "examples do not depend on how many items are asked"


@pytest.mark.parametrize(
    ("shots", "error", "words"),
    [
        (
            {"n": 5, "path": "train.jsonl"},
            ConfigError,
            r"few_shot\.n is 5, and .*train\.jsonl has 4 different examples",
        ),
        ({"n": 3}, ConfigError, r"there are 2 examples other than item"),
        ({"n": 1, "path": "gone.jsonl"}, DatasetError, r"the examples of prompt\.few_shot: .*gone\.jsonl"),
    ],
)
def test_too_few_examples_are_refused(data: Path, shots: dict[str, Any], error: type[Exception], words: str) -> None:
    if "path" in shots:
        shots = shots | {"path": str(data / shots["path"])}
    with pytest.raises(error, match=words):
        prompts_of(data, prompt={"few_shot": shots})
