"""What a row of each layout means, and what is said of one that means nothing."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.datasets.adapters.detection import choose_adapter
from infra.datasets.cells import as_text
from infra.datasets.rows import Problem, Row, Turn
from schemas.errors import DatasetError
from schemas.valid_dataset import ColumnMapping, ValidDatasetConfig


def read(row: Row, config: ValidDatasetConfig | None = None) -> Problem:
    return choose_adapter(config or ValidDatasetConfig(path="x.jsonl"), row).read(row)


@pytest.mark.parametrize(
    ("ending", "gold"),
    [
        ("#### 18", "18"),
        ("#### 1,234", "1234"),
        ("####109,200,000\n", "109200000"),
        ("#### -5", "-5"),
        ("the mark #### 1 comes again #### 2", "2"),
        ("#### 1,2", "1,2"),
    ],
)
def test_gsm8k_golds_stand_behind_the_last_mark_without_thousands_separators(ending: str, gold: str) -> None:
    problem = read({"question": "How many?", "answer": f"Some steps.\n{ending}"})
    assert problem.gold == gold
    assert problem.turns == (Turn("user", "How many?"),)
    assert problem.solution is not None
    assert problem.solution.startswith("Some steps.")
    assert problem.item_id is None


@pytest.mark.parametrize("answer", ["no mark", "a mark ####  ", "####"])
def test_gsm8k_refuses_an_answer_without_a_gold(answer: str) -> None:
    with pytest.raises(DatasetError, match="no gold after '####'"):
        read({"question": "q", "answer": answer}, ValidDatasetConfig(path="x", format="gsm8k"))


def test_math500_subject_and_level_are_subsets_and_the_unique_id_is_the_id() -> None:
    row = {"problem": "p", "solution": "s", "answer": "\\frac12", "subject": "Algebra", "level": 5, "unique_id": "a/1"}
    problem = read(row)
    assert problem.subsets == {"subject": "Algebra", "level": "5"}
    assert (problem.item_id, problem.gold, problem.solution) == ("a/1", "\\frac12", "s")


@pytest.mark.parametrize("answer", ["025", "25", 25, 25.0])
def test_aime_answers_lose_their_leading_zeros(answer: object) -> None:
    config = ValidDatasetConfig(path="aime24/test.jsonl")
    assert read({"ID": "2024-I-1", "Problem": "p", "Answer": answer}, config).gold == "25"
    assert read({"id": 60, "question": "p", "answer": answer}, config).item_id == "60"


@pytest.mark.parametrize("answer", ["1000", "-1", "2.5", "x"])
def test_aime_refuses_what_is_no_aime_answer(answer: str) -> None:
    with pytest.raises(DatasetError, match=r"whole number in \[0, 999\]"):
        read({"problem": "p", "answer": answer}, ValidDatasetConfig(path="x", format="aime"))


def test_gsm_plus_is_recognised_and_keeps_its_kinds_apart() -> None:
    row = {"question": "q", "solution": "s\n#### 4.33", "answer": "4.33", "perturbation_type": "digit expansion"}
    problem = read(row)
    assert (problem.gold, problem.subsets) == ("4.33", {"perturbation_type": "digit expansion"})
    assert read(row | {"seed_question": "s"}).cluster == "s"


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        ({"a": ["7"]}, "7"),
        ({"a": [7.0]}, "7"),
        ({"a": {"b": "7"}}, "7"),
        ({"a": {"b": ["7"]}}, "7"),
        ({"a": {"b": {"c": 7}}}, "7"),
        ({"a.b": "7", "a": {"b": "8"}}, "7"),
    ],
)
def test_golds_in_lists_of_one_and_inside_objects(row: Row, gold: str) -> None:
    inner = {"a.b": "a.b"}.get(next(iter(row)), "a")
    if isinstance(row["a"], dict) and inner == "a":
        inner = "a.b.c" if isinstance(row["a"]["b"], dict) else "a.b"
    config = ValidDatasetConfig(path="x", columns=ColumnMapping(prompt="p", gold=inner))
    assert read({"p": "x", **row}, config).gold == gold


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"a": ["7", "8"]}, "is a list of 2 values"),
        ({"a": []}, "is a list of 0 values"),
        ({"a": [["7"]]}, "expected text or a number"),
        ({"a": [None]}, "expected text or a number"),
    ],
)
def test_golds_of_several_values_are_refused(row: Row, reason: str) -> None:
    with pytest.raises(DatasetError, match=reason):
        read({"p": "x", **row}, ValidDatasetConfig(path="x", columns=ColumnMapping(prompt="p", gold="a")))


def test_verl_rows_are_recognised() -> None:
    turns = [{"role": "user", "content": "p"}]
    row = {"data_source": "aime", "prompt": turns, "reward_model": {"ground_truth": "7", "style": "rule"}}
    problem = read(row)
    assert (problem.turns, problem.gold, problem.subsets) == ((Turn("user", "p"),), "7", {"data_source": "aime"})
    mapping = ColumnMapping(messages="prompt", gold="reward_model.ground_truht")
    with pytest.raises(DatasetError, match=r"did you mean 'reward_model\.ground_truth'"):
        read(row, ValidDatasetConfig(path="x", columns=mapping))
    with pytest.raises(DatasetError, match=r"expected text; name a column .* in valid_dataset\.columns\.messages"):
        read(row, ValidDatasetConfig(path="x", columns=ColumnMapping(prompt="prompt", gold="data_source")))


def test_mapped_columns_read_what_they_are_told() -> None:
    mapping = ColumnMapping(prompt="p", gold="g", id="k", subsets=("kind", "hard"), solution="s")
    row = {"p": "  kept  ", "g": " 7 ", "k": 3, "kind": "a", "hard": True, "s": None}
    problem = read(row, ValidDatasetConfig(path="x", columns=mapping))
    assert problem == Problem(
        turns=(Turn("user", "  kept  "),), gold="7", item_id="3", subsets={"kind": "a", "hard": "true"}, solution=None
    )


def test_a_gap_in_a_subset_column_puts_the_row_into_no_stratum() -> None:
    config = ValidDatasetConfig(path="x", columns=ColumnMapping(prompt="p", gold="g", subsets=("kind",)))
    for gap in (None, "", " ", float("nan")):
        assert read({"p": "x", "g": "1", "kind": gap}, config).subsets == {}


def test_conversations_keep_their_turns() -> None:
    config = ValidDatasetConfig(path="x", columns=ColumnMapping(messages="m", gold="g"))
    turns = [("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c")]
    row = {"m": [{"role": role, "content": content} for role, content in turns], "g": "1"}
    assert read(row, config).turns == tuple(turns)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ("text", "expected a list"),
        ([], "expected a list"),
        ([{"role": "user"}], "text content"),
        ([{"role": "tool", "content": "x"}], "expected a role of system, user, assistant"),
        ([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "ends with a turn of 'assistant'"),
        ([{"role": "user", "content": " "}], "empty prompt"),
    ],
)
def test_a_conversation_that_nobody_can_answer_is_refused(messages: object, reason: str) -> None:
    config = ValidDatasetConfig(path="x", columns=ColumnMapping(messages="m", gold="g"))
    with pytest.raises(DatasetError, match=reason):
        read({"m": messages, "g": "1"}, config)


@pytest.mark.parametrize("value", [True, None, float("nan"), float("inf"), [1], {"a": 1}, Decimal("NaN"), b"x"])
def test_golds_are_text_or_finite_numbers(value: object) -> None:
    with pytest.raises(DatasetError, match="expected text or a"):
        as_text(value)


@pytest.mark.parametrize(
    ("value", "text"), [(18, "18"), (18.0, "18"), (-0.5, "-0.5"), (1e-7, "0.0000001"), (Decimal("2.50"), "2.5")]
)
def test_a_number_has_one_text_whatever_type_its_file_gave_it(value: object, text: str) -> None:
    assert as_text(value) == text


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_whole_numbers_read_alike_as_integers_and_as_floats(number: int) -> None:
    assert as_text(number) == as_text(float(number)) == as_text(Decimal(number)) == str(number)


@given(st.floats(-(2.0**53), 2.0**53, exclude_min=True, exclude_max=True))
def test_the_text_of_a_float_is_that_float_again(number: float) -> None:
    text = as_text(number)
    assert float(text) == number
    assert "e" not in text


def test_a_missing_column_is_told_with_its_nearest_and_the_key_to_set() -> None:
    config = ValidDatasetConfig(path="x", columns=ColumnMapping(prompt="problm", gold="answer"))
    with pytest.raises(DatasetError) as caught:
        read({"problem": "p", "answer": "1"}, config)
    message = str(caught.value)
    assert "did you mean 'problem'?" in message
    assert "'problem', 'answer'" in message
    assert "valid_dataset.columns.prompt" in message
    with pytest.raises(DatasetError, match=r"set valid_dataset\.columns\.gold|Set valid_dataset\.columns\.gold"):
        read({"question": "p"}, ValidDatasetConfig(path="x", format="gsm8k"))


def test_auto_refuses_to_guess() -> None:
    for row in ({"question": "q", "answer": "free text"}, {"input": "q", "label": "1"}, {}):
        with pytest.raises(DatasetError, match="the format cannot be told"):
            read(row)


def test_a_half_surrogate_is_refused_in_every_column() -> None:
    config = ValidDatasetConfig(
        path="x", columns=ColumnMapping(prompt="p", gold="g", id="i", subsets=("k",), solution="s")
    )
    row = {"p": "p", "g": "1", "i": "i", "k": "k", "s": "s"}
    for column in row:
        with pytest.raises(DatasetError, match="surrogate"):
            read({**row, column: "\ud83d"}, config)
