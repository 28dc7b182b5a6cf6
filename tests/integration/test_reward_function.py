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
from tasks.grading.reward_function import check_function, describe_call, plausible_call

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

FAULTY = """
import os, sys
def wrong_signature(prompt, completion): return 1.0
def needs_column(prompt, completions, prompt_ids, completion_ids, solution, **data): return 1.0
def text(prompt, completions, prompt_ids, completion_ids, **data): return "much"
def infinite(prompt, completions, prompt_ids, completion_ids, **data): return float("inf")
def leave(prompt, completions, prompt_ids, completion_ids, **data): sys.exit(3)
def die(prompt, completions, prompt_ids, completion_ids, **data): os.abort()
"""
CALL = plausible_call("What is 1 + 1?", "2", json.dumps({"answer": "2", "level": 3}))


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
        check_function(path, CALL)
    assert path in str(refusal.value)
    assert "working directory" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong_signature", "TypeError: wrong_signature() got an unexpected keyword argument 'answer'"),
        ("needs_column", "TypeError: needs_column() missing 1 required positional argument: 'solution'"),
        ("text", "ValueError: could not convert string to float: 'much'"),
        ("infinite", "returned inf, not a finite number"),
        ("leave", "ends its process when called once"),
        ("die", "ends its process when called once"),
    ],
)
def test_one_that_gives_no_number_for_the_first_row_is_refused(name: str, words: str, working_directory: Path) -> None:
    (working_directory / "my_faulty_rewards.py").write_text(FAULTY)
    with pytest.raises(ConfigError) as refusal:
        check_function(f"my_faulty_rewards.{name}", CALL)
    assert words in str(refusal.value)
    if "process" not in words:
        assert "(prompt: str, completions: str, prompt_ids: list[int], completion_ids: list[int], **data)" in str(
            refusal.value
        )
        assert str(refusal.value).endswith("data: answer, level")


def test_one_in_the_working_directory_is_found() -> None:
    check_function("my_rewards.misbehave", CALL)
