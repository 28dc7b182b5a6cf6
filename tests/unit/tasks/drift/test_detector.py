"""detect_drift: what alarms, what does not, which feature is named, and what is refused."""

import random
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.drift import DriftConfig, DriftReport
from schemas.errors import ConfigError, DatasetError
from tasks.drift.detector import detect_drift
from tests.support.populations import draw_problems


def drifted(report: DriftReport) -> set[str]:
    assert report.drifted == any(feature.drifted for feature in report.features)
    return {feature.name for feature in report.features if feature.drifted}


def feature(report: DriftReport, name: str):
    return next(one for one in report.features if one.name == name)


def problems(*prompts: str | None, **columns: object) -> pa.Table:
    return pa.table({"item_id": [f"i{row}" for row in range(len(prompts))], "prompt": list(prompts), **columns})


def test_two_samples_of_one_population_are_silent_and_say_what_they_cannot_see() -> None:
    rng = np.random.default_rng(1)
    report = detect_drift(draw_problems(rng, 300), draw_problems(rng, 300))
    assert drifted(report) == set()
    assert (report.num_reference, report.num_current, report.unknown) == (300, 300, ())
    length = feature(report, "num_prompt_tokens")
    assert length.underpowered
    assert length.smallest_detectable is not None
    assert length.smallest_detectable > length.effect_floor == 0.1
    assert None not in (length.psi, length.jensen_shannon, length.kl)


def test_longer_prompts_alarm_by_length() -> None:
    rng = np.random.default_rng(2)
    report = detect_drift(draw_problems(rng, 500), draw_problems(rng, 500, stretch=1.25))
    assert {"num_prompt_tokens", "prompt_length"} <= drifted(report)
    assert "subset:subject" not in drifted(report)


def test_a_new_subject_alarms_by_name() -> None:
    rng = np.random.default_rng(3)
    report = detect_drift(draw_problems(rng, 500), draw_problems(rng, 500, new_subject=0.05))
    assert drifted(report) == {"subset:subject"}
    assert "never seen before: 'topology'" in feature(report, "subset:subject").details


def test_new_words_alone_alarm_by_the_text() -> None:
    rng = np.random.default_rng(4)
    report = detect_drift(draw_problems(rng, 500), draw_problems(rng, 500, new_words=0.06))
    assert drifted(report) & {"text", "words"}
    assert drifted(report) <= {"text", "words", "number_magnitude", "number_count"}


def test_a_small_but_certain_change_stays_below_the_floor() -> None:
    rng = np.random.default_rng(5)
    columns = {"reference": rng.normal(100, 20, 60_000), "current": rng.normal(101, 20, 60_000)}
    tables = [pa.table({"num_prompt_tokens": values.astype(int)}) for values in columns.values()]
    found = detect_drift(*tables).features[0]
    assert found.p_value is not None
    assert found.p_value < 1e-6
    assert not found.drifted
    lower = detect_drift(*tables, config=DriftConfig(threshold=0.02))
    assert lower.drifted


def test_copies_alarm_as_such() -> None:
    rng = np.random.default_rng(6)
    reference, current = draw_problems(rng, 400), draw_problems(rng, 400)
    prompts = current.column("prompt").to_pylist()
    prompts[300:] = [prompt.upper() + " 17!" for prompt in prompts[:100]]
    copied = current.set_column(current.column_names.index("prompt"), "prompt", pa.array(prompts))
    found = feature(detect_drift(reference, copied), "near_copies")
    assert not found.drifted, "one more word is another text"
    prompts[300:] = [prompt.replace(" ", ", ").upper() for prompt in prompts[:100]]
    copied = current.set_column(current.column_names.index("prompt"), "prompt", pa.array(prompts))
    found = feature(detect_drift(reference, copied), "near_copies")
    assert found.drifted
    assert found.bars[0].current == 0.5


def test_another_language_alarms_by_script() -> None:
    reference = problems(*[f"What is {row} plus {row}?" for row in range(60)])
    current = problems(*[f"Сколько будет {row} плюс {row}?" for row in range(60)])
    assert {"script", "text", "words"} <= drifted(detect_drift(reference, current))


def test_kinds_and_sizes_of_answers_are_features() -> None:
    small = pa.table({"answer": [str(row % 50) for row in range(400)]})
    large = pa.table({"answer": [str(row * 10**6) for row in range(1, 401)]})
    halves = pa.table({"answer": [f"{row}.5" if row % 2 else str(row) for row in range(400)]})
    words = pa.table({"answer": ["\\sqrt{2}" if row % 2 else "an apple" for row in range(400)]})
    assert drifted(detect_drift(small, large)) == {"answer_magnitude"}
    assert "answer_kind" in drifted(detect_drift(small, halves))
    assert detect_drift(small, words).unknown == ("answer_magnitude: only the reference has values",)


def test_subsets_come_as_text_lists_or_maps() -> None:
    as_text = pa.table({"subset": ["level=1", "level=2", "level=1"] * 20})
    as_list = pa.table({"subset": [["level=1"], ["level=2"], ["level=1"]] * 20})
    as_map = pa.table({"subset": pa.array([[("level", "1")], [("level", "2")], [("level", "1")]] * 20, MAP)})
    for table in (as_text, as_list, as_map):
        assert detect_drift(as_text, table).features[0].effect == 0.0
    other_key = pa.table({"subset": ["level=1", "level=2", "topic=x"] * 20})
    assert drifted(detect_drift(as_text, other_key)) == {"subset:level", "subset:topic"}


MAP = pa.map_(pa.string(), pa.string())


@settings(max_examples=15, deadline=None)
@given(st.lists(st.text("ab 1é", max_size=12), min_size=1, max_size=25), st.randoms(use_true_random=False))
def test_rows_have_no_order_and_a_table_is_no_distance_from_itself(prompts: list[str], rng: random.Random) -> None:
    answers = [str(len(prompt)) for prompt in prompts]
    table = problems(*prompts, answer=answers, subset=[f"parity={len(prompt) % 2}" for prompt in prompts])
    shuffled = table.take(rng.sample(range(table.num_rows), table.num_rows))
    other = problems("a b", "b 1", "é", answer=["1", "x", "2"])
    assert detect_drift(table, other) == detect_drift(shuffled, other)
    report = detect_drift(table, shuffled)
    assert not report.drifted
    assert {feature.effect for feature in report.features} == {0.0}
    assert {feature.p_value for feature in report.features} == {1.0}


def test_an_absent_column_is_unknown() -> None:
    rng = np.random.default_rng(8)
    table = draw_problems(rng, 50)
    report = detect_drift(table, table.drop_columns(["answer", "num_prompt_tokens"]))
    assert set(report.unknown) == {
        "num_prompt_tokens: only the reference has values",
        "answer_magnitude: only the reference has values",
        "answer_kind: only the reference has values",
    }


def test_missing_and_infinite_numbers_are_no_values() -> None:
    tokens = [10.0, float("nan"), float("inf"), None, 12.0]
    report = detect_drift(pa.table({"num_prompt_tokens": tokens}), pa.table({"num_prompt_tokens": [10, 12]}))
    assert report.features[0].num_reference == 2
    assert all(value is None or np.isfinite(value) for value in (report.features[0].psi, report.features[0].effect))


@pytest.mark.parametrize("num_rows", [1, 2])
def test_a_row_or_two_prove_nothing_and_break_nothing(num_rows: int) -> None:
    table = draw_problems(np.random.default_rng(9), 200)
    for report in (detect_drift(table, table.slice(0, num_rows)), detect_drift(table.slice(0, num_rows), table)):
        assert not report.drifted
        assert feature(report, "prompt_length").underpowered


def test_constant_features_are_compared() -> None:
    same = problems(*["one text"] * 30, answer=["7"] * 30)
    assert not detect_drift(same, same).drifted
    other = problems(*["one text"] * 30, answer=["8"] * 30)
    assert feature(detect_drift(same, other), "answer_magnitude").effect == pytest.approx(2)


@pytest.mark.parametrize(
    ("reference", "current", "message"),
    [
        (problems(), problems("a"), "the reference has no rows"),
        (problems("a"), problems(), "the current table has no rows"),
        (
            problems("a"),
            pa.table({"question": ["a"]}),
            "share no feature: .* the current one question; expected prompt",
        ),
        (problems("a"), pa.table({"prompt": [1]}), "column 'prompt' is int64, expected string"),
        (
            problems("a"),
            problems("a", num_prompt_tokens=["x"]),
            "'num_prompt_tokens' is string, expected whole numbers",
        ),
        (problems("a"), problems("a", subset=[3]), "'subset' holds 3, expected 'key=value'"),
        (problems(None), problems(None), "share no feature"),
    ],
)
def test_what_cannot_be_compared_is_refused(reference: pa.Table, current: pa.Table, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        detect_drift(reference, current)


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's own, importable from the working directory."""
    (tmp_path / "own_features.py").write_text(
        "def num_commas(prompt): return prompt.count(',')\n"
        "def first_word(prompt): return prompt.split()[0]\n"
        "def constant(prompt): return 3\n"
        "def fails(prompt): return 1 / (len(prompt) - 9)\n"
        "def undefined(prompt): return float('nan')\n"
        "def mixed(prompt): return 'x' if ',' in prompt else 1\n"
        "value = 3\n"
    )
    (tmp_path / "broken_features.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.chdir(tmp_path)
    yield "own_features"
    for name in ("own_features", "broken_features"):
        sys.modules.pop(name, None)


def test_features_of_the_users_own_count(user_module: str) -> None:
    reference = problems(*["so it is"] * 40, *["so, it is"] * 40)
    current = problems(*["so, it, is"] * 80)
    report = detect_drift(reference, current, config=DriftConfig(features=(f"{user_module}.num_commas",)))
    assert f"{user_module}.num_commas" in drifted(report)
    words = problems(*["if it is"] * 80)
    report = detect_drift(reference, words, config=DriftConfig(features=(f"{user_module}.first_word",)))
    assert "never seen before: 'if'" in feature(report, f"{user_module}.first_word").details


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("own_features.fails", r"own_features.fails raised ZeroDivisionError on row 2 \('so, it is'\)"),
        ("own_features.undefined", r"undefined returned nan for row 1 \('so it is'\); expected a finite number"),
        ("own_features.constant", "constant returned 3.0 for every row"),
        ("own_features.mixed", "mixed returned 1.0 for row 1 and 'x' for row 2"),
        ("own_features.value", "is a int, expected a function"),
        ("own_features.absent", "cannot be imported"),
        ("no_such_module.function", "cannot be imported .*ModuleNotFoundError"),
        ("broken_features.function", "RuntimeError: no licence"),
        ("undotted", "cannot be imported"),
    ],
)
def test_a_feature_that_cannot_be_used_is_named(user_module: str, function: str, message: str) -> None:
    del user_module
    table = problems("so it is", "so, it is")
    with pytest.raises(ConfigError, match=message):
        detect_drift(table, table, config=DriftConfig(features=(function,)))
