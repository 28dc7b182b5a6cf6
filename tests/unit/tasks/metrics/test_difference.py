"""Differences of means: against scipy, by hand, and how often a true null is rejected."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tasks.metrics.difference import (
    Effect,
    clustered_effect,
    interval_without_spread,
    minimum_detectable_effect,
    sign_flip_p_value,
    student_p_value,
    welch_difference,
)

GAPS = st.lists(st.integers(-4, 4).map(lambda quarter: quarter / 4), min_size=1, max_size=10)


def p_value(gaps: list[float], num_resamples: int = 9_999) -> float:
    """The sign-flip p-value with a fixed seed."""
    return sign_flip_p_value(np.array(gaps), num_resamples=num_resamples, rng=np.random.default_rng(0))


@given(GAPS)
def test_the_exact_p_value_is_the_share_of_sign_patterns(gaps: list[float]) -> None:
    patterns = [
        sum(sign * gap for sign, gap in zip(signs, gaps, strict=True)) for signs in product((1, -1), repeat=len(gaps))
    ]
    expected = sum(abs(pattern) >= abs(sum(gaps)) for pattern in patterns) / len(patterns)
    assert p_value(gaps) == pytest.approx(expected)


def test_resampling_agrees_with_the_exact_binomial() -> None:
    # 30 equal sizes, 21 up: the sign test
    gaps = [0.5] * 21 + [-0.5] * 9
    assert p_value(gaps, 99_999) == pytest.approx(stats.binomtest(21, 30).pvalue, abs=0.002)


def test_many_distinct_sizes_fall_back_on_the_normal() -> None:
    gaps = np.random.default_rng(1).normal(0.01, 1, 30_000)
    assert p_value(gaps.tolist()) == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue, abs=0.002)


def test_no_difference_anywhere_is_no_evidence() -> None:
    assert p_value([0.0] * 50) == 1.0


def test_independent_sets_agree_with_scipy() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.random(30), rng.random(50) + 0.1
    sides = [clustered_effect(side, np.arange(len(side))).effect for side in (first, second)]
    effect = welch_difference(*sides, is_clustered=True)
    reference = stats.ttest_ind(second, first, equal_var=False)
    assert student_p_value(effect) == pytest.approx(reference.pvalue)
    assert effect.degrees_of_freedom == pytest.approx(reference.df)


def test_the_detectable_effect_is_detected_that_often() -> None:
    effect = Effect(difference=0.0, stderr=0.02, degrees_of_freedom=1e9)
    found = minimum_detectable_effect(effect, alpha=0.05, power=0.8)
    assert found == pytest.approx(0.02 * (1.959964 + 0.841621), rel=1e-5)
    unknown = Effect(difference=0.0, stderr=float("nan"), degrees_of_freedom=1)
    assert minimum_detectable_effect(unknown, alpha=0.05, power=0.8) is None


def test_without_spread_the_interval_still_has_a_width() -> None:
    low, high = interval_without_spread(0.0, 100, 0.05)
    assert (low, high) == pytest.approx((-0.03699, 0.03699), abs=1e-4)
    assert interval_without_spread(1.0, 100, 0.05) == pytest.approx((1 - 2 * 0.03699, 1.0), abs=1e-4)


def test_a_true_null_on_clustered_rows_is_rejected_as_often_as_stated() -> None:
    rng = np.random.default_rng(7)
    num_rejected = 0
    for _ in range(1_000):
        # 50 items x 10 repeats; each model has its own chance on each item, both the same on average
        chances = rng.uniform(0, 1, (2, 50))
        means = rng.binomial(10, chances) / 10
        num_rejected += sign_flip_p_value(means[1] - means[0], num_resamples=499, rng=rng) <= 0.05
    # 50 expected, standard deviation 6.9
    assert 30 <= num_rejected <= 70
