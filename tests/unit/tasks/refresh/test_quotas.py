"""Quotas are whole, sum up, stay next to the exact share, and depend on nothing but the weights."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.refresh.quotas import largest_remainder

WEIGHTS = st.dictionaries(st.tuples(st.text(max_size=3), st.text(max_size=2)), st.integers(0, 500), min_size=1)


def test_remainders_by_hand() -> None:
    # exact shares 4.7, 3.1, 2.2
    assert largest_remainder(10, {("a",): 47, ("b",): 31, ("c",): 22}) == {("a",): 5, ("b",): 3, ("c",): 2}


def test_nothing_to_share_needs_no_weights() -> None:
    assert largest_remainder(0, {("a",): 0}) == {("a",): 0}


@given(WEIGHTS, st.integers(0, 3_000))
def test_quotas_sum_up_and_are_the_exact_share_rounded(weights: dict[tuple[str, str], int], total: int) -> None:
    whole = sum(weights.values())
    if whole == 0:
        return
    quotas = largest_remainder(total, weights)
    assert sum(quotas.values()) == total
    for stratum, quota in quotas.items():
        assert abs(quota * whole - total * weights[stratum]) < whole
        assert total > whole or quota <= weights[stratum]


@given(WEIGHTS, st.integers(0, 3_000), st.randoms())
def test_the_order_of_strata_does_not_matter(
    weights: dict[tuple[str, str], int], total: int, rng: "st.random.Random"
) -> None:
    if sum(weights.values()) == 0:
        return
    shuffled = list(weights.items())
    rng.shuffle(shuffled)
    assert largest_remainder(total, dict(shuffled)) == largest_remainder(total, weights)


def test_many_small_strata_have_no_alphabet() -> None:
    quotas = largest_remainder(100, {(f"{number:04}",): 1 for number in range(1_000)})
    chosen = [int(stratum[0]) for stratum, quota in quotas.items() if quota]
    assert len(chosen) == 100
    assert 350 < sum(chosen) / len(chosen) < 650
