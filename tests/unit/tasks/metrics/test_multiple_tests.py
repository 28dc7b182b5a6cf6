"""Holm's adjustment: known values, and what every adjustment must hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.metrics.multiple_tests import adjust_p_values

P_VALUES = st.lists(st.none() | st.floats(0, 1), max_size=12)


def test_known_values() -> None:
    # as p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") of R gives
    assert adjust_p_values([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_p_values([]) == []
    assert adjust_p_values([None, 0.9, None]) == [None, 0.9, None]
    assert adjust_p_values([0.6, 0.7]) == [1.0, 1.0]


@given(P_VALUES)
def test_none_becomes_smaller_and_the_order_stays(p_values: list[float | None]) -> None:
    adjusted = adjust_p_values(p_values)
    pairs = [(p, found) for p, found in zip(p_values, adjusted, strict=True) if p is not None and found is not None]
    assert len(pairs) == sum(p is not None for p in p_values)
    assert all(p <= found <= 1 for p, found in pairs)
    ordered = sorted(pairs)
    assert [found for _, found in ordered] == sorted(found for _, found in pairs)
