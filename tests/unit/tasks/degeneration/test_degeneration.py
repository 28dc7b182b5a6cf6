"""Loops and shares: what is a sign of degeneration, and what is not."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.degeneration import SignName
from tasks.degeneration.repetition import ends_in_loop
from tasks.degeneration.stage import find_signs

THRESHOLDS: dict[SignName, float | None] = {"stopped_by_length": 0.5, "without_answer": 0.5, "repeating": 0.2}


@pytest.mark.parametrize(
    "text",
    ["ab" * 30, "." * 60, "start " + "The answer is 4. " * 4 + "The ans", "hello world. " * 5, ("q" * 299 + "r") * 3],
)
def test_a_unit_that_stands_at_the_end_again_and_again_is_a_loop(text: str) -> None:
    assert ends_in_loop(text)


@pytest.mark.parametrize("text", ["", "a", "." * 59, "1, 2, 3, 4, 5, 6, 7, 8", "a b c d e f g h i j " * 2])
def test_what_people_write_is_none(text: str) -> None:
    assert not ends_in_loop(text)


@given(st.text(), st.text(min_size=1, max_size=200).filter(str.strip), st.integers(3, 6))
def test_any_repeated_unit_is_found(start: str, unit: str, repeats: int) -> None:
    solid = f"<{unit}>"
    assert ends_in_loop(start + solid * repeats) or len(solid * repeats) < 60


def test_shares_are_counted_and_raised_when_chance_does_not_explain_them() -> None:
    rows = [
        {"item_id": f"i{n}", "completion": "no " * 40, "finish_reason": "length", "verdict": "truncated"}
        for n in range(60)
    ]
    rows += [
        {"item_id": f"j{n}", "completion": "It is 4.", "finish_reason": "stop", "verdict": "correct"} for n in range(40)
    ]
    rows.append({"item_id": "k", "completion": None, "finish_reason": None, "verdict": "failed"})
    signs = {sign.name: sign for sign in find_signs(pa.Table.from_pylist(rows), THRESHOLDS)}
    assert {name: sign.share for name, sign in signs.items()} == {
        "stopped_by_length": 0.6,
        "without_answer": 0.0,
        "repeating": 0.6,
    }
    # of 100 items 60: at least 0.502 and 0.2
    assert [name for name, sign in signs.items() if sign.is_raised] == ["stopped_by_length", "repeating"]


def test_without_completions_nothing_is_known_and_nothing_raised() -> None:
    rows = [{"item_id": "k", "completion": None, "finish_reason": None, "verdict": "failed"}]
    signs = list(find_signs(pa.Table.from_pylist(rows), {**THRESHOLDS, "repeating": None}))
    assert [(sign.name, sign.share, sign.is_raised) for sign in signs] == [
        ("stopped_by_length", None, False),
        ("without_answer", None, False),
    ]


@pytest.mark.needs_data
def test_of_2400_answers_of_real_models_only_the_three_true_loops_are_found(data_dir: Path) -> None:
    path = data_dir / "gsm8k_model_outputs" / "example_model_solutions.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    texts = [part["solution"] for row in rows for part in row.values() if isinstance(part, dict)]
    assert len(texts) == 2_400
    loops = [text for text in texts if ends_in_loop(text)]
    assert [text[-60:].isdigit() for text in loops] == [True, True, True]
