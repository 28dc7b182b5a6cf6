"""Canaries: what rounding does is excused, what a wrong replica does is not."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.consistency import WorkerName
from schemas.inference import CanaryRecord
from tasks.consistency.canaries import compare_canaries

WORKERS = [WorkerName(replica=number, attempt=1) for number in range(4)]


def answer(
    item: int = 0,
    *,
    tokens: tuple[int, ...] = (5, 6, 7),
    logprobs: tuple[float | None, ...] | None = None,
    **changes: object,
) -> CanaryRecord:
    fields = {
        "item_id": f"item-{item}",
        "prompt_hash": f"hash-{item}",
        "text": " ".join(map(str, tokens)),
        "token_ids": tokens,
        "logprobs": (-0.7,) * len(tokens) if logprobs is None else logprobs,
    }
    return CanaryRecord.model_validate({**fields, **changes})


def compare(*records: CanaryRecord | list[CanaryRecord], tolerance: float = 0.1) -> tuple[str, list[int], str]:
    answers = {
        worker: each if isinstance(each, list) else [each] for worker, each in zip(WORKERS, records, strict=False)
    }
    check = compare_canaries(answers, tolerance=tolerance)
    assert check is not None
    return check.outcome, [worker.replica for worker in check.suspects], check.message


def test_equal_answers_pass() -> None:
    outcome, suspects, message = compare(*[answer()] * 3)
    assert (outcome, suspects) == ("passed", [])
    assert "3 replicas answer 1 canaries alike" in message


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (answer(tokens=(5, 6, 9), logprobs=(-0.7, -0.7, -0.1)), "token 2 is 9 instead of 7"),
        (answer(tokens=(5, 9, 7), logprobs=(-0.9, -0.7, -0.7)), "token 1 is 9 instead of 6"),
        (answer(logprobs=(-0.7, -0.3, -0.7)), "differs by 0.4 nats"),
        (answer(tokens=(5, 6)), "2 tokens instead of 3"),
        (answer(logprobs=(-0.7, None, -0.7)), "differs by inf nats"),
        (answer(tokens=(0, 0, 0), logprobs=(None, None, None)), "token 0 is 0 instead of 5, log-probabilities none"),
        (answer(prompt_hash="other"), "its prompt is another one"),
        (answer(text="decoded otherwise"), "the same tokens read"),
        (answer(error="too long"), "refused: too long"),
    ],
)
def test_the_replica_that_differs_from_the_majority_is_named(bad: CanaryRecord, words: str) -> None:
    outcome, suspects, message = compare(answer(), answer(), bad)
    assert (outcome, suspects) == ("violated", [2])
    assert words in message
    assert "replica 2 of attempt 1 answers item 'item-0'" in message


def test_parting_at_a_near_tie_is_rounding() -> None:
    parted = answer(tokens=(5, 6, 9, 9), logprobs=(-0.72, -0.7, -0.75, -3.0))
    assert compare(answer(), answer(), parted)[0] == "passed"
    assert compare(answer(), answer(), parted, tolerance=0.01)[0] == "violated"


def test_tokens_without_numbers_on_both_sides_are_no_tie() -> None:
    broken = (-0.7, None, -0.7)
    outcome, _, message = compare(answer(logprobs=broken), answer(tokens=(5, 9, 7), logprobs=broken))
    assert outcome == "violated"
    assert "log-probabilities none and none" in message


def test_tokens_that_are_both_likely_are_no_tie() -> None:
    """Two replicas sure of two tokens do not have the same model, although their log-probabilities are alike."""
    sure = answer(tokens=(5,), logprobs=(-0.01,))
    assert compare(sure, sure, answer(tokens=(6,), logprobs=(-0.01,)))[0] == "violated"


def test_so_many_ties_are_no_chance() -> None:
    good = [answer(item) for item in range(8)]
    parted = [answer(item, tokens=(5, 6, 9)) for item in range(8)]
    assert compare(good, good, parted[:5] + good[5:])[0] == "passed"
    outcome, suspects, message = compare(good, good, parted)
    assert (outcome, suspects) == ("violated", [2])
    assert "parts from the others in 8 of 8 canaries" in message


def test_of_two_nobody_can_say_which_is_wrong() -> None:
    assert compare(answer(), answer(tokens=(1, 2, 3), logprobs=(-0.1,) * 3))[1] == [0, 1]


def test_answers_without_logprobs_have_to_be_equal() -> None:
    silent = answer(logprobs=None).model_copy(update={"logprobs": None})
    other = answer(tokens=(5, 6, 9)).model_copy(update={"logprobs": None})
    assert compare(silent, silent)[0] == "passed"
    assert compare(silent, silent, other)[1] == [2]


def test_one_worker_has_nothing_to_compare_with() -> None:
    assert compare_canaries({WORKERS[0]: [answer()]}, tolerance=0.1) is None
    assert compare_canaries({}, tolerance=0.1) is None
    assert compare_canaries({WORKERS[0]: [answer(0)], WORKERS[1]: [answer(1)]}, tolerance=0.1) is None


def test_a_worker_that_died_among_its_canaries_is_compared_in_those_it_answered() -> None:
    whole = [answer(item) for item in range(4)]
    assert compare(whole, whole, whole[:1])[0] == "passed"
    assert compare(whole, whole, [answer(0, tokens=(1, 1, 1), logprobs=(-0.1,) * 3)])[1] == [2]


@given(st.lists(st.floats(-5, 0), min_size=1, max_size=6), st.floats(1e-4, 1.0))
def test_the_statistic_is_the_largest_difference(shifts: list[float], tolerance: float) -> None:
    tokens = tuple(range(len(shifts)))
    base = answer(tokens=tokens, logprobs=(-6.0,) * len(tokens))
    moved = answer(tokens=tokens, logprobs=tuple(-6.0 - shift for shift in shifts))
    check = compare_canaries({WORKERS[0]: [base], WORKERS[1]: [base], WORKERS[2]: [moved]}, tolerance=tolerance)
    assert check is not None
    largest = max(map(abs, shifts))
    assert check.statistic is not None
    assert math.isclose(check.statistic, largest, abs_tol=1e-9)
    assert (check.outcome == "violated") == (check.statistic > tolerance)
