"""The user's own reward function, called in grading processes: what it returns, raises and does to its process."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.errors import ConfigError
from schemas.grading import Grade, GradingConfig
from schemas.states import FinishReason, Verdict
from tasks.grading.grader import Grader, GradeRequest
from tasks.grading.reward_function import check_function, describe_call

MODULE = """
import os, time

def length_reward(prompt, completions, prompt_ids, completion_ids, answer, **data):
    assert prompt == "What is 1 + 1?" and prompt_ids == [5, 6, 7]
    print("said on stdout")
    return len(completion_ids) if completions == answer else -1

def misbehave(prompt, completions, prompt_ids, completion_ids, **data):
    if completions == "raise":
        raise KeyError("no such column")
    if completions == "hang":
        time.sleep(600)
    if completions == "die":
        os.abort()
    if completions == "nan":
        return float("nan")
    if completions == "text":
        return "much"
    return 0.25
"""


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path) -> Iterator[Path]:
    before = Path.cwd()
    (tmp_path / "my_rewards.py").write_text(MODULE)
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def grade(function: str, *completions: str, timeout_s: float = 60.0) -> list[Grade]:
    data = json.dumps({"answer": "2", "level": 3})
    requests = [
        GradeRequest(
            completion=text,
            gold="2",
            finish_reason=FinishReason.LENGTH,
            grader="function",
            grader_data=describe_call("What is 1 + 1?", text, [5, 6, 7], [8, 9], data),
        )
        for text in completions
    ]
    with Grader(GradingConfig(num_processes=2, timeout_s=timeout_s), function=function) as grader:
        return grader.grade(requests)


def test_a_reward_is_kept_and_its_score_lies_between_0_and_1() -> None:
    right, wrong = grade("my_rewards.length_reward", "2", "3")
    assert (right.verdict, right.score, right.reward) == (Verdict.CORRECT, 1.0, 2.0)
    assert (wrong.verdict, wrong.score, wrong.reward) == (Verdict.WRONG, 0.0, -1.0)


def test_what_goes_wrong_in_it_is_no_score_and_costs_no_other_sample() -> None:
    grades = grade("my_rewards.misbehave", "fine", "raise", "hang", "die", "nan", "text", "also fine", timeout_s=3.0)
    assert [each.verdict for each in grades] == [
        Verdict.WRONG,
        Verdict.CRASHED,
        Verdict.TIMEOUT,
        Verdict.CRASHED,
        Verdict.CRASHED,
        Verdict.CRASHED,
        Verdict.WRONG,
    ]
    assert [each.score for each in grades] == [0.25, None, None, None, None, None, 0.25]
    reasons = [each.reason or "" for each in grades]
    assert "KeyError" in reasons[1]
    assert "within 3 s" in reasons[2]
    assert "signal" in reasons[3]
    assert "not a finite number" in reasons[4]
    assert "ValueError" in reasons[5]


def test_a_completion_that_failed_does_not_reach_it() -> None:
    with Grader(function="my_rewards.misbehave") as grader:
        (failed,) = grader.grade([GradeRequest(completion=None, gold="2", grader="function", grader_data="[]")])
        assert not grader.pool.is_started
    assert failed.verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("my_rewards.absent", "absent"),
        ("no_such_module_of_mine.reward", "ModuleNotFoundError"),
        ("os.sep", "not a function"),
        ("broken.reward", "ZeroDivisionError"),
    ],
)
def test_one_that_cannot_be_imported_is_refused(path: str, words: str, working_directory: Path) -> None:
    (working_directory / "broken.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match=words) as refusal:
        check_function(path)
    assert path in str(refusal.value)
    assert "working directory" in str(refusal.value)


def test_one_in_the_working_directory_is_found() -> None:
    check_function("my_rewards.length_reward")
