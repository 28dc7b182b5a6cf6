"""The tests and distances: against their textbook definitions, and what holds for any numbers."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tasks.drift import two_samples
from tasks.drift.two_samples import Level

LEVEL = Level(alpha=0.01, num_features=10)
samples = arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6).map(lambda value: round(value, 3)))
histograms = st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any).map(lambda counts: np.array(counts))


def pairs_of_histograms() -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    """Two histograms over the same bins, each bin taken by one of them at least."""
    return (
        st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).filter(any), min_size=1, max_size=8)
        .map(lambda bins: (np.array([first for first, _ in bins]), np.array([second for _, second in bins])))
        .filter(lambda pair: pair[0].any() and pair[1].any())
    )


@given(samples, samples)
def test_statistics_are_those_of_their_definitions(reference: np.ndarray, current: np.ndarray) -> None:
    statistic = two_samples.kolmogorov_smirnov(reference, current).statistic
    values = [*reference, *current]
    assert statistic == pytest.approx(max(abs((reference <= one).mean() - (current <= one).mean()) for one in values))
    if reference.std() > 1e-3:
        moved = scipy.stats.wasserstein_distance(reference, current) / reference.std()
        assert two_samples.standardised_wasserstein(reference, current) == pytest.approx(moved, rel=1e-6, abs=1e-9)


def test_the_p_value_of_numbers_is_the_asymptotic_one() -> None:
    rng = np.random.default_rng(5)
    reference, current = rng.normal(size=300), rng.normal(0.2, 1, size=400)
    expected = scipy.stats.kstwobign.sf(
        np.sqrt(300 * 400 / 700) * two_samples.kolmogorov_smirnov(reference, current).statistic
    )
    assert two_samples.kolmogorov_smirnov(reference, current).p_value == pytest.approx(expected)


@given(samples)
def test_a_sample_is_no_distance_from_itself_in_any_order(sample: np.ndarray) -> None:
    shuffled = np.random.default_rng(0).permutation(sample)
    assert two_samples.kolmogorov_smirnov(sample, shuffled) == (0.0, 1.0)
    assert two_samples.standardised_wasserstein(sample, shuffled) == 0.0
    assert two_samples.distances(*two_samples.decile_counts(sample, shuffled)) == pytest.approx((0, 0, 0), abs=1e-9)


@given(pairs_of_histograms())
def test_distances_have_their_bounds(pair: tuple[np.ndarray, np.ndarray]) -> None:
    found = two_samples.distances(*pair)
    assert found.psi >= 0
    assert found.kl >= 0
    assert 0 <= found.jensen_shannon <= 1
    assert 0 <= two_samples.total_variation(*pair) <= 1
    assert 0 <= two_samples.unseen_p_value(*pair) <= 1
    assert two_samples.distances(pair[0], pair[0]) == pytest.approx((0, 0, 0), abs=1e-7)


@given(pairs_of_histograms())
def test_chi_square_is_that_of_the_table(pair: tuple[np.ndarray, np.ndarray]) -> None:
    statistic = two_samples.permuted_chi_square(*pair, Level(alpha=0.2, num_features=1)).statistic
    expected = scipy.stats.chi2_contingency(np.array(pair), correction=False).statistic
    assert statistic == pytest.approx(expected, abs=1e-9)


def test_permuted_labels_agree_with_the_exact_test() -> None:
    reference, current = np.array([30, 10]), np.array([18, 22])
    exact = scipy.stats.fisher_exact(np.array([reference, current])).pvalue
    assert two_samples.permuted_chi_square(reference, current, LEVEL).p_value == pytest.approx(exact, rel=0.2)


def test_an_unseen_category_has_its_hypergeometric_chance() -> None:
    # 2 of 3 rows are in the new category; of the 10 pairs among 5 rows 3 lie among the current ones; 2 categories
    assert two_samples.unseen_p_value(np.array([2, 0]), np.array([1, 2])) == pytest.approx(2 * 3 / 10)
    assert two_samples.unseen_p_value(np.array([5, 5]), np.array([1, 0])) == 1.0


@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_lies_between_bonferroni_and_no_correction(p_values: list[float]) -> None:
    rejected = two_samples.holm(p_values, 0.05)
    for p_value, falls in zip(p_values, rejected, strict=True):
        assert not falls or p_value <= 0.05
        assert falls or p_value > 0.05 / len(p_values)


def test_holm_by_hand() -> None:
    assert two_samples.holm([0.04, 0.01, 0.03, 0.005], 0.05) == [False, True, False, True]


def test_drawing_ends_early_only_where_significance_is_out_of_reach() -> None:
    def batches(value: float) -> "itertools.repeat[np.ndarray]":
        return itertools.repeat(np.full((1, 100), value))

    hopeless = two_samples.draw_null(np.array([1.0]), batches(2.0), LEVEL, per_step=2)
    clear = two_samples.draw_null(np.array([1.0]), batches(0.0), LEVEL, per_step=2)
    assert hopeless.shape == (1, 100)
    assert clear.shape == (1, 2_000)
    assert two_samples.permutation_p_value(1.0, hopeless[0]) == 1.0
    assert two_samples.permutation_p_value(1.0, clear[0]) <= LEVEL.strict / 2 * 1.001


def test_what_could_be_seen_is_seen_in_four_of_five_cases() -> None:
    rng = np.random.default_rng(7)
    shift = two_samples.smallest_shift(400, 400, 0.001)
    seen = [
        two_samples.kolmogorov_smirnov(rng.normal(size=400), rng.normal(shift, 1, 400)).p_value <= 0.001
        for _ in range(200)
    ]
    # the efficiency is a lower bound: a little more than 0.8
    assert 0.75 <= np.mean(seen) <= 0.99
    shares = np.full(4, 0.25)
    move = two_samples.smallest_move(np.full(4, 100), np.full(4, 100), 0.001)
    assert move is not None
    moved = shares + np.array([1, 1, -1, -1]) * move / 2
    seen = [
        scipy.stats.chi2_contingency(np.array([rng.multinomial(400, shares), rng.multinomial(400, moved)])).pvalue
        <= 0.001
        for _ in range(200)
    ]
    assert 0.7 <= np.mean(seen) <= 0.9


def test_more_rows_see_more() -> None:
    assert two_samples.smallest_shift(500, 10_000, 0.001) < two_samples.smallest_shift(500, 500, 0.001)
    assert two_samples.smallest_move(np.array([4]), np.array([4]), 0.001) is None
