"""Estimators: known values by hand, and the rules that hold for all numbers."""

from itertools import combinations
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ConfigError, DistributedEvaluationError
from tasks.metrics.estimators import (
    clustered_stderr,
    pass_at_k,
    pass_at_k_per_item,
    student_quantile,
    wilson_interval,
)

COUNTS = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))
SCORES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8)), min_size=1, max_size=60)


@given(COUNTS)
def test_pass_at_k_is_the_ratio_of_binomial_coefficients(counts: tuple[int, int, int]) -> None:
    n, c, k = counts
    assert pass_at_k(n, c, k) == pytest.approx(1 - comb(n - c, k) / comb(n, k), abs=1e-12)


def test_pass_at_k_is_the_share_of_draws_with_a_correct_one() -> None:
    draws = list(combinations([True, True, False, False, False], 2))
    assert pass_at_k(5, 2, 2) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))


def test_pass_at_k_is_undefined_with_fewer_samples_than_k() -> None:
    assert pass_at_k(3, 3, 4) is None
    assert pass_at_k(0, 0, 1) is None


def test_pass_at_k_stands_large_counts() -> None:
    assert pass_at_k(100_000, 1, 1) == pytest.approx(1e-5, rel=1e-9)
    assert pass_at_k(100_000, 50_000, 2_000) == 1.0


@given(COUNTS)
def test_pass_at_k_grows_with_k(counts: tuple[int, int, int]) -> None:
    n, c, k = counts
    values = [pass_at_k(n, c, j) for j in range(1, k + 1)]
    assert values == sorted(value for value in values if value is not None)
    assert values[0] == pytest.approx(c / n)


def test_pass_at_k_of_many_items_is_that_of_each() -> None:
    many = pass_at_k_per_item(np.array([4, 2, 4]), np.array([1, 1, 0]), 3)
    assert many[[0, 2]] == pytest.approx([0.75, 0])
    assert np.isnan(many[1])


@pytest.mark.parametrize(("n", "c", "k", "error"), [(4, 1, 0, ConfigError), (4, 5, 1, DistributedEvaluationError)])
def test_pass_at_k_refuses_impossible_counts(n: int, c: int, k: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="got"):
        pass_at_k(n, c, k)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=50))
def test_one_score_per_cluster_gives_the_classical_error_of_the_mean(scores: list[float]) -> None:
    expected = np.std(scores, ddof=1) / sqrt(len(scores))
    assert clustered_stderr(scores, range(len(scores))) == pytest.approx(expected, abs=1e-12)


def test_the_clustered_error_by_hand() -> None:
    # mean 1/2; residuals of the clusters +1, -1; sqrt(2/1 * (1 + 1)) / 4
    assert clustered_stderr([1, 1, 0, 0], ["a", "a", "b", "b"]) == pytest.approx(0.5)
    # unequal clusters: mean 3/4, residuals 3/4 and -3/4: sqrt(2 * 2 * 9/16) / 4
    assert clustered_stderr([1, 1, 1, 0], ["a", "a", "a", "b"]) == pytest.approx(1.5 / 4)


def test_copies_of_a_sample_add_no_information() -> None:
    scores, items = [1.0, 0.0, 1.0, 1.0], ["a", "b", "c", "d"]
    assert clustered_stderr(scores * 5, items * 5) == pytest.approx(clustered_stderr(scores, items))


@pytest.mark.parametrize(
    ("scores", "clusters"), [([], []), ([1.0], ["a"]), ([1.0, 0.0], ["a", "a"]), ([None, 1], "ab")]
)
def test_fewer_than_two_clusters_have_no_error(scores: list[float | None], clusters: list[str]) -> None:
    assert clustered_stderr(scores, clusters) is None


def test_equal_scores_of_two_clusters_have_an_observed_spread_of_zero() -> None:
    assert clustered_stderr([0.1] * 30, list(range(10)) * 3) == 0.0


@given(SCORES, st.randoms())
def test_the_clustered_error_knows_no_order_and_skips_missing_scores(
    pairs: list[tuple[float, int]], rng: "st.random.Random"
) -> None:
    before = clustered_stderr([score for score, _ in pairs], [cluster for _, cluster in pairs])
    shuffled = [*pairs, (float("nan"), 3), (float("nan"), 99)]
    rng.shuffle(shuffled)
    after = clustered_stderr([score for score, _ in shuffled], [cluster for _, cluster in shuffled])
    assert after == (None if before is None else pytest.approx(before, abs=1e-12))


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(DistributedEvaluationError, match="2 scores but 1"):
        clustered_stderr([1, 0], ["a"])


def test_wilson_by_known_values() -> None:
    # Newcombe 1998, Statistics in Medicine 17, table I: 81 of 263 and 0 of 20
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(0, 0) is None


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_holds_the_proportion_and_has_a_width_everywhere(counts: tuple[int, int], confidence: float) -> None:
    c, n = counts
    interval = wilson_interval(c, n, confidence)
    assert interval is not None
    assert 0 <= interval.low <= c / n <= interval.high <= 1
    assert interval.high - interval.low > 0
    mirrored = wilson_interval(n - c, n, confidence)
    assert mirrored is not None
    assert mirrored.low == pytest.approx(1 - interval.high, abs=1e-12)


def test_wilson_refuses_more_correct_than_scored() -> None:
    with pytest.raises(DistributedEvaluationError, match="got 3"):
        wilson_interval(3, 2)


def test_student_quantiles_by_table() -> None:
    quantiles = student_quantile(np.array([0, 1, 4, 9, 1_000_000]), 0.975)
    assert np.isnan(quantiles[0])
    assert quantiles[1:] == pytest.approx([12.7062, 2.7764, 2.2622, 1.95997], abs=1e-4)
