"""Verdicts and scores, as far as no grading process is needed."""

import json

import pytest

from schemas.grading import GradingConfig
from schemas.states import FinishReason, Verdict
from tasks.grading.golds import check_golds
from tasks.grading.grader import Grader, GradeRequest, grade_answers


def test_grades_come_in_the_order_of_the_completions() -> None:
    grades = grade_answers([r"\boxed{1}", "no idea", "#### 3", r"\boxed{5}"], ["1", "2", "3", "4"])
    assert [grade.verdict for grade in grades] == [Verdict.CORRECT, Verdict.NO_ANSWER, Verdict.CORRECT, Verdict.WRONG]
    assert [grade.score for grade in grades] == [1.0, 0.0, 1.0, 0.0]
    assert [grade.answer for grade in grades] == ["1", None, "3", "5"]


def test_each_completion_needs_its_gold() -> None:
    with pytest.raises(ValueError, match="2 completions but 1 golds"):
        grade_answers(["1", "2"], ["1"])


def test_nothing_to_grade_is_no_grades() -> None:
    assert grade_answers([], []) == []


def test_plain_numbers_start_no_process() -> None:
    with Grader() as grader:
        grader.grade([GradeRequest(completion=r"so \boxed{18}", gold="18")] * 3)
        assert not grader.pool.is_started


@pytest.mark.parametrize(
    ("request_", "verdict", "score"),
    [
        (GradeRequest(completion=None, gold="1"), Verdict.FAILED, None),
        (GradeRequest(completion=r"<think>\boxed{1}", gold="1"), Verdict.TRUNCATED, 0.0),
        (GradeRequest(completion=r"\boxed{1}", gold="1", starts_in_reasoning=True), Verdict.TRUNCATED, 0.0),
        (GradeRequest(completion="3 + 4", gold="4", finish_reason=FinishReason.LENGTH), Verdict.TRUNCATED, 0.0),
        (GradeRequest(completion=r"\boxed{4} so", gold="4", finish_reason=FinishReason.LENGTH), Verdict.CORRECT, 1.0),
        (GradeRequest(completion=r"\boxed{4", gold="4"), Verdict.UNPARSED, 0.0),
        (GradeRequest(completion=r"\boxed{10^{10^{10}}}", gold="4"), Verdict.WRONG, 0.0),
        (GradeRequest(completion=r"\boxed{10^{10^{10}}}", gold="x+1"), Verdict.UNPARSED, 0.0),
        (GradeRequest(completion="", gold="4"), Verdict.NO_ANSWER, 0.0),
    ],
)
def test_outcomes_of_the_model_score_0_and_failures_have_no_score(
    request_: GradeRequest, verdict: Verdict, score: float | None
) -> None:
    with Grader() as grader:
        (grade,) = grader.grade([request_])
    assert (grade.verdict, grade.score) == (verdict, score)
    assert (grade.reason is None) == (score is not None)


def test_the_configured_sources_decide() -> None:
    text = r"The answer is 5. \boxed{4}"
    assert grade_answers([text], ["4"])[0].score == 1.0
    assert grade_answers([text], ["5"], config=GradingConfig(answer_sources=("phrase",)))[0].score == 1.0
    assert grade_answers(["4"], ["4"], config=GradingConfig(answer_sources=("boxed",)))[0].verdict is Verdict.NO_ANSWER


def task(name: str, answer: str) -> str:
    return json.dumps({"task": name, "entry": {"question": "?", "answer": answer, "metadata": {}}})


@pytest.mark.parametrize(
    ("name", "completion", "score"),
    [
        ("chain_sum", "4 - 1 = 3, so <answer>1,003</answer>", 1.0),
        ("chain_sum", r"\boxed{1003.0}", 1.0),
        ("chain_sum", "The answer is 1003 apples.", 1.0),
        ("chain_sum", "It is 11003", 4 / 5),
        ("basic_arithmetic", "1003", 1.0),
        ("basic_arithmetic", "$1003$", 1.0),
        ("basic_arithmetic", "17", 0.0),
        ("gsm_symbolic", "He has $1,003 left.", 1.0),
        ("gsm_symbolic", "He has 17 left.", 0.01),
    ],
)
def test_a_procedural_task_keeps_its_partial_score(name: str, completion: str, score: float) -> None:
    request = GradeRequest(completion=completion, gold="1003", grader="reasoning_gym", grader_data=task(name, "1003"))
    with Grader() as grader:
        (grade,) = grader.grade([request])
        assert not grader.pool.is_started
    assert grade.score == score
    assert grade.verdict is (Verdict.CORRECT if score == 1.0 else Verdict.WRONG)


def test_golds_that_are_numbers_words_or_letters_are_accepted_at_once() -> None:
    assert check_golds(["18", "1,234", r"\text{Evelyn}", "(C)", "025", r"\frac{1}{2}", "yes"]) == [None] * 7


@pytest.mark.parametrize("gold", ["", "  ", "None", "nan", "null", "N/A", "10^{10^{10}}"])
def test_a_gold_that_is_no_answer_is_refused_with_its_reason(gold: str) -> None:
    (reason,) = check_golds([gold])
    assert reason
