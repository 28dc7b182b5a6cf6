"""How often the drift rule is wrong: false alarms on one population, misses on two; made-up and real problems."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tasks.drift.detector import detect_drift
from tests.support.populations import draw_problems

WITH_PROMPTS = int(os.environ.get("MILEPOST_DRIFT_REPETITIONS", "200"))
"""The table of docs/drift.md was made with 500."""


# The texts take nine tenths of the time: they are part of the smaller sizes, where every test is weakest. 200 times are
# enough there: a rule that alarms in 5 of 100 cases fails with probability 0.97 (binomial: at most 4 of 200).
@pytest.mark.parametrize(
    ("num_rows", "with_prompts", "num_repetitions"),
    [(200, True, WITH_PROMPTS), (500, True, WITH_PROMPTS), (1_000, False, 500), (5_000, False, 500)],
)
def test_two_halves_of_one_population_alarm_in_two_of_a_hundred_cases_at_most(
    num_rows: int, with_prompts: bool, num_repetitions: int
) -> None:
    rng = np.random.default_rng(num_rows)
    num_alarms = 0
    for _ in range(num_repetitions):
        whole = draw_problems(rng, 2 * num_rows, with_prompts=with_prompts)
        num_alarms += detect_drift(whole.slice(0, num_rows), whole.slice(num_rows)).drifted
    assert num_alarms <= 0.02 * num_repetitions


@pytest.mark.parametrize(
    ("change", "least", "names"),
    [
        ({"stretch": 1.25}, 0.95, {"num_prompt_tokens", "prompt_length"}),
        ({"new_subject": 0.05}, 0.9, {"subset:subject"}),
        ({"new_words": 0.05}, 0.9, {"text", "words"}),
    ],
)
def test_a_change_is_seen_and_named(change: dict[str, float], least: float, names: set[str]) -> None:
    rng = np.random.default_rng(17)
    seen: list[bool] = []
    for _ in range(60):
        report = detect_drift(draw_problems(rng, 500), draw_problems(rng, 500, **change))
        seen.append(any(feature.drifted and feature.name in names for feature in report.features))
    assert np.mean(seen) >= least


def read_rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def gsm8k(folder: Path) -> pa.Table:
    rows = read_rows(folder / "gsm8k" / "test.jsonl")
    return pa.table(
        {
            "item_id": [f"i{number}" for number in range(len(rows))],
            "prompt": [row["question"] for row in rows],
            "answer": [row["answer"].rpartition("####")[2].strip() for row in rows],
        }
    )


@pytest.mark.needs_data
def test_halves_of_gsm8k_are_silent(data_dir: Path) -> None:
    table = gsm8k(data_dir)
    rng = np.random.default_rng(3)
    middle = table.num_rows // 2
    num_alarms = 0
    for _ in range(40):
        order = rng.permutation(table.num_rows)
        num_alarms += detect_drift(table.take(order[:middle]), table.take(order[middle:])).drifted
    assert num_alarms <= 1


@pytest.mark.needs_data
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("numerical substitution", {"answer_kind"}),
        ("distraction insertion", {"prompt_length", "number_count", "words"}),
        ("digit expansion", {"number_magnitude", "answer_magnitude"}),
        ("critical thinking", {"answer_kind"}),
    ],
)
def test_rewritten_problems_alarm_by_what_was_rewritten(data_dir: Path, kind: str, names: set[str]) -> None:
    rows = [
        row for row in read_rows(data_dir / "gsm_plus" / "gsmplus_testmini.jsonl") if row["perturbation_type"] == kind
    ]
    current = pa.table({"prompt": [row["question"] for row in rows], "answer": [row["answer"] for row in rows]})
    report = detect_drift(gsm8k(data_dir), current)
    assert names <= {feature.name for feature in report.features if feature.drifted}
