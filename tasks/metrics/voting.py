"""Majority votes among the samples of an item: maj@k, self-consistency (Wang et al. 2023).

Owns what a vote is and how a tie is scored; must not grade. The grader's equivalence classes are not stored, so answers
vote by spelling, save that all correct samples of an item vote together: they equal the gold, hence each other.
"""

import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from infra.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import ConfigError, DistributedEvaluationError

ABSTAINS: Final = -1
"""Answer code of a sample without an answer: it casts no vote."""
CORRECT: Final = -2
"""Answer code of a correct sample, whatever its spelling."""


class MajorityVote(NamedTuple):
    """The votes of one item."""

    value: float | None
    """Chance that the winning answer is correct, ties broken at random; None with fewer than k samples."""
    num_votes: int
    """Votes held: one per whole block of k samples."""
    num_ties: int
    """Those whose first place is shared."""


class Votes(NamedTuple):
    """The votes of many items, arrays of shape `(num_items,)`."""

    value: FloatArray
    """NaN where an item has fewer than k samples."""
    num_votes: IntArray
    num_ties: IntArray


def normalise_answer(answer: str) -> str:
    """Return the spelling by which an answer votes: compatible characters, case, blanks, `$` and a last dot aside."""
    text = unicodedata.normalize("NFKC", answer).casefold()
    return "".join(text.replace("$", "").split()).rstrip(".")


def maj_at_k(answers: Sequence[str | None], correct: Sequence[bool], k: int | None = None) -> MajorityVote:
    """Return the majority vote over the answers of one item, in order of repeat.

    Args:
        answers: the answer of each scored sample; None abstains.
        correct: whether each is correct; correct ones vote together whatever their spelling.
        k: samples per vote; None for all. With more than k samples, the mean over the whole blocks of k in order, which
            is unbiased because repeats are exchangeable.

    A tie counts the share of its answers that are correct (1/2 when one of two is). A vote in which all abstain is 0.

    Raises:
        ConfigError: k < 1.
        DistributedEvaluationError: the two sequences differ in length.
    """
    if len(answers) != len(correct):
        raise DistributedEvaluationError(f"{len(answers)} answers but {len(correct)} verdicts: give one per sample")
    if k is None and not answers:
        return MajorityVote(None, 0, 0)
    code_of: dict[str, int] = {}
    codes = [
        ABSTAINS if answer is None else code_of.setdefault(normalise_answer(answer), len(code_of)) for answer in answers
    ]
    items = np.zeros(len(codes), dtype=np.int64)
    votes = hold_votes(
        items, np.array(codes, dtype=np.int64), np.array(correct, dtype=np.bool_), k=k or len(codes), num_items=1
    )
    value = float(votes.value[0])
    return MajorityVote(None if np.isnan(value) else value, int(votes.num_votes[0]), int(votes.num_ties[0]))


def hold_votes(items: IntArray, answers: IntArray, correct: BoolArray, *, k: int, num_items: int) -> Votes:
    """Return `maj_at_k` of every item.

    Args:
        items: item of each scored sample, ascending, and in order of repeat within an item; shape `(num_samples,)`.
        answers: code of its normalised answer, `ABSTAINS` without one.
        correct: whether it is correct.
        k: samples per vote.
        num_items: items in all; those without samples get no vote.

    Raises:
        ConfigError: k < 1.
    """
    if k < 1:
        raise ConfigError(f"k of maj@k must be at least 1, got {k}")
    num_samples = np.bincount(items, minlength=num_items)
    num_votes = num_samples // k
    first_vote = np.cumsum(num_votes) - num_votes
    position = np.arange(len(items)) - (np.cumsum(num_samples) - num_samples)[items]
    voting = position < (num_votes * k)[items]
    vote = (first_vote[items] + position // k)[voting]
    choice = np.where(correct, CORRECT, answers)[voting]
    score, tied = _count(vote, choice, int(num_votes.sum()))
    owner = np.repeat(np.arange(num_items), num_votes)
    with np.errstate(invalid="ignore"):
        value = np.bincount(owner, score, minlength=num_items) / num_votes
    return Votes(value, num_votes, np.bincount(owner[tied], minlength=num_items))


def _count(vote: IntArray, choice: IntArray, total_votes: int) -> tuple[FloatArray, BoolArray]:
    """Return the score of each vote and whether its first place is shared."""
    cast = choice != ABSTAINS
    vote, choice = vote[cast], choice[cast]
    order = np.lexsort((choice, vote))
    vote, choice = vote[order], choice[order]
    starts = np.flatnonzero(np.r_[True, (vote[1:] != vote[:-1]) | (choice[1:] != choice[:-1])][: len(vote)])
    size = np.diff(np.r_[starts, len(vote)])
    vote, choice = vote[starts], choice[starts]
    largest = np.zeros(total_votes, dtype=np.int64)
    np.maximum.at(largest, vote, size)
    winning = size == largest[vote]
    winners = np.bincount(vote[winning], minlength=total_votes)
    right = np.bincount(vote[winning & (choice == CORRECT)], minlength=total_votes)
    return right / np.maximum(winners, 1), winners > 1
