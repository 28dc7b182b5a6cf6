"""self_consistency: known values, bounds, order; where it is undefined."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.metrics.agreement import agreement_per_item
from tasks.metrics.voting import ABSTAINS

SAMPLES = st.lists(st.tuples(st.integers(0, 3), st.integers(ABSTAINS, 2), st.booleans()), max_size=20)


def agreement(samples: list[tuple[int, int, bool]], num_items: int = 4) -> list[float]:
    """The agreement of each item over (item, answer, correct)."""
    items, answers = (np.array([one[place] for one in samples], dtype=np.int64) for place in (0, 1))
    correct = np.array([one[2] for one in samples], dtype=np.bool_)
    return agreement_per_item(items, answers, correct, num_items=num_items).tolist()


@pytest.mark.parametrize(
    ("answers", "correct", "expected"),
    [
        ([0, 0, 0], [False] * 3, 1.0),
        ([0, 1, 2], [False] * 3, 0.0),
        ([0, 0, 1], [False] * 3, 1 / 3),
        ([0, 0, 1, 1], [False] * 4, 1 / 3),
        ([0, 1, 2], [True, True, False], 1 / 3),
        ([0, 0, ABSTAINS], [False] * 3, 1 / 3),
        ([ABSTAINS, ABSTAINS], [False] * 2, 0.0),
        ([0], [True], None),
        ([], [], None),
    ],
)
def test_known_values(answers: list[int], correct: list[bool], expected: float | None) -> None:
    (value,) = agreement([(0, *one) for one in zip(answers, correct, strict=True)], num_items=1)
    assert value == pytest.approx(expected) if expected is not None else np.isnan(value)


@given(SAMPLES, st.randoms())
def test_bounded_and_independent_of_order(samples: list[tuple[int, int, bool]], random: Random) -> None:
    values = agreement(samples)
    assert all(np.isnan(value) or 0 <= value <= 1 for value in values)
    shuffled = sorted(samples, key=lambda _: random.random())
    assert agreement(shuffled) == pytest.approx(values, nan_ok=True)
