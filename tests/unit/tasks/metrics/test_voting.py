"""maj@k: who votes, how ties are scored, what more than k samples give."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ConfigError, DistributedEvaluationError
from tasks.metrics.voting import MajorityVote, hold_votes, maj_at_k, normalise_answer

BALLOT = st.lists(st.tuples(st.sampled_from(["1", "2", "3", None]), st.booleans()), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("answers", "correct", "expected"),
    [
        (["7", "7", "8"], [True, True, False], (1.0, 1, 0)),
        (["7", "8", "8"], [True, False, False], (0.0, 1, 0)),
        (["7", "8"], [True, False], (0.5, 1, 1)),
        (["7", "8", "9"], [True, False, False], (1 / 3, 1, 1)),
        (["8", "9"], [False, False], (0.0, 1, 1)),
        (["1/2", "0.5", "3", "3"], [True, True, False, False], (0.5, 1, 1)),
        (["3", " $3.$ ", "7"], [False, False, True], (0.0, 1, 0)),
        ([None, None, "7"], [False, False, True], (1.0, 1, 0)),
        ([None, None], [False, False], (0.0, 1, 0)),
        ([], [], (None, 0, 0)),
    ],
)
def test_votes_by_hand(answers: list[str | None], correct: list[bool], expected: MajorityVote) -> None:
    assert maj_at_k(answers, correct) == pytest.approx(MajorityVote(*expected))


def test_more_samples_than_k_vote_in_whole_blocks() -> None:
    vote = maj_at_k(["7", "7", "8", "8", "7"], [True, True, False, False, True], k=2)
    assert vote == MajorityVote(0.5, 2, 0)


def test_fewer_samples_than_k_are_undefined() -> None:
    assert maj_at_k(["7"], [True], k=2) == MajorityVote(None, 0, 0)


def _by_counting(ballot: list[tuple[str | None, bool]]) -> Fraction:
    """The definition in plain Python: the correct share among the answers with most votes."""
    votes: dict[str, int] = {}
    for answer, correct in ballot:
        if correct or answer is not None:
            name = "the gold" if correct else f"wrong {answer}"
            votes[name] = votes.get(name, 0) + 1
    first = [name for name, count in votes.items() if count == max(votes.values())]
    return Fraction(int("the gold" in first), max(len(first), 1))


@given(BALLOT, st.permutations(range(12)))
def test_a_vote_is_its_definition_and_knows_no_order(ballot: list[tuple[str | None, bool]], order: list[int]) -> None:
    shuffled = [ballot[index] for index in order if index < len(ballot)]
    vote = maj_at_k([answer for answer, _ in shuffled], [correct for _, correct in shuffled])
    assert vote.value == pytest.approx(float(_by_counting(ballot)))


@given(st.lists(BALLOT, min_size=1, max_size=6), st.integers(1, 4))
def test_many_items_vote_as_each_alone(ballots: list[list[tuple[str | None, bool]]], k: int) -> None:
    items = np.array([item for item, ballot in enumerate(ballots) for _ in ballot])
    answers = np.array([-1 if answer is None else int(answer) for ballot in ballots for answer, _ in ballot])
    correct = np.array([flag for ballot in ballots for _, flag in ballot])
    votes = hold_votes(items, answers, correct, k=k, num_items=len(ballots) + 1)
    for item, ballot in enumerate(ballots):
        alone = maj_at_k([answer for answer, _ in ballot], [flag for _, flag in ballot], k)
        assert alone == MajorityVote(
            None if np.isnan(votes.value[item]) else pytest.approx(float(votes.value[item])),
            int(votes.num_votes[item]),
            int(votes.num_ties[item]),
        )
    assert np.isnan(votes.value[-1])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("42.", "42", True), ("$x + 1$", "x+1", True), ("４２", "42", True), ("Yes", "yes", True), ("42", "43", False)],
)
def test_answers_vote_by_normalised_spelling(one: str, other: str, same: bool) -> None:
    assert (normalise_answer(one) == normalise_answer(other)) is same


def test_bad_calls_are_refused() -> None:
    with pytest.raises(ConfigError, match="got 0"):
        hold_votes(np.array([0]), np.array([0]), np.array([True]), k=0, num_items=1)
    with pytest.raises(DistributedEvaluationError, match="2 answers but 1"):
        maj_at_k(["1", "2"], [True])
