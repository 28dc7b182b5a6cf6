"""The statistics under the verdict: standardised as dealing at random would, exact where the normal bound is not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.consistency.residuals import (
    confirm,
    normal_bound,
    rank_scores,
    standardised_residuals,
    total_by_item,
)

rates = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3)), min_size=8, max_size=60)


@given(rates)
def test_residuals_of_equal_shards_add_up_to_nothing(pairs: list[tuple[float, int]]) -> None:
    scores = np.array([score for score, _ in pairs[: len(pairs) // 4 * 4]])
    worker = np.arange(len(scores)) % 4
    residuals = standardised_residuals(total_by_item(scores, worker, np.arange(len(scores)), 4))
    assert residuals.sum() == pytest.approx(0, abs=1e-6)


@given(rates)
def test_ranks_lie_between_0_and_1_and_keep_the_order(pairs: list[tuple[float, int]]) -> None:
    values = np.array([value for value, _ in pairs])
    ranks = rank_scores(values)
    assert ((ranks > 0) & (ranks < 1)).all()
    assert ranks.mean() == pytest.approx(0.5)
    order = np.argsort(values, kind="stable")
    assert (np.diff(ranks[order]) >= 0).all()


def test_residuals_have_variance_one_when_items_are_dealt_at_random() -> None:
    rng = np.random.default_rng(5)
    scores = rng.random(400)
    found = [
        standardised_residuals(total_by_item(scores, rng.permutation(400) % 5, np.arange(400), 5)) for _ in range(2000)
    ]
    assert np.std(found) == pytest.approx(1.0, abs=0.03)


def test_equal_values_have_no_residual_and_an_absent_worker_none() -> None:
    units = total_by_item(np.full(10, 0.7), np.arange(10) % 2, np.arange(10), 3)
    residuals = standardised_residuals(units)
    assert residuals[:2].tolist() == [0.0, 0.0]
    assert np.isnan(residuals[2])


def test_confirmation_keeps_its_false_alarms_where_the_normal_bound_does_not() -> None:
    """Of 96 shards of 32 items with 2% correct, one is beyond the normal bound in several runs of a hundred."""
    rng = np.random.default_rng(8)
    worker, item = np.repeat(np.arange(96), 32), np.arange(96 * 32)
    bound = normal_bound(0.001, 96)
    beyond, confirmed = 0, 0
    for _ in range(300):
        units = total_by_item((rng.random(len(item)) < 0.02).astype(float), worker, item, 96)
        if np.abs(standardised_residuals(units)).max() > bound:
            beyond += 1
            confirmed += confirm(units, alpha=0.001, rng=rng) <= 0.001
    assert beyond >= 3
    assert confirmed <= 1


def test_confirmation_agrees_with_what_pooled_neighbours_give() -> None:
    rng = np.random.default_rng(9)
    worker = np.repeat(np.arange(4), 10_000)
    scores = rng.random(40_000) + 0.02 * (worker == 1)
    units = total_by_item(scores, worker, np.arange(40_000), 4)
    assert confirm(units, alpha=0.01, rng=rng) <= 0.01
    level = total_by_item(rng.random(40_000), worker, np.arange(40_000), 4)
    assert confirm(level, alpha=0.01, rng=rng) > 0.01
