"""The rule: what all looks may spend together, and that it alarms for a drop and not for chance."""

import numpy as np
import pyarrow as pa
import pytest

from schemas.comparison import Comparison
from tasks.metrics.comparison import compare
from tasks.regression.rule import COMPARISON, drop_p_value, is_regression, spend, split_level


def compared(before: np.ndarray, after: np.ndarray) -> Comparison:
    items = [f"i{number}" for number in range(len(before))]
    tables = [pa.table({"item_id": items, "score": scores.astype(float)}) for scores in (before, after)]
    return compare(*tables, config=COMPARISON)


def test_all_looks_together_spend_no_more_than_alpha() -> None:
    shares = [spend(0.05, look) for look in range(1, 100_000)]
    assert sum(shares) == pytest.approx(0.05, rel=1e-3)
    assert sum(shares) < 0.05
    assert shares == sorted(shares, reverse=True)


def test_the_best_counts_as_a_comparison_with_each() -> None:
    assert split_level(0.01, 1) == (0.005, 0.005)
    assert split_level(0.01, 10) == (0.005, pytest.approx(0.0005))


def test_a_rise_and_no_change_are_no_drop() -> None:
    scores = np.arange(50) % 2
    assert drop_p_value(compared(scores, scores)) == 1.0
    assert drop_p_value(compared(scores, np.ones(50))) == 1.0


def test_a_model_that_collapses_is_seen_although_all_items_fell_alike() -> None:
    assert drop_p_value(compared(np.ones(50), np.zeros(50))) == 0.5**50


def test_few_differing_items_are_judged_exactly() -> None:
    before, after = np.ones(200), np.ones(200)
    after[:8] = 0
    assert drop_p_value(compared(before, after)) == pytest.approx(0.5**8)


def test_a_drop_counts_from_the_minimum_effect_on() -> None:
    assert is_regression(-0.02, 1e-9, level=1e-3, minimum_effect=0.02)
    assert not is_regression(-0.019, 1e-9, level=1e-3, minimum_effect=0.02)
    assert not is_regression(-0.5, 2e-3, level=1e-3, minimum_effect=0.02)


def test_equal_checkpoints_seldom_alarm_and_a_drop_of_15_points_does() -> None:
    rng = np.random.default_rng(1)
    alarms, seen = 0, 0
    for _ in range(30):
        chances = rng.beta(1, 1, 300)
        scores = [(rng.random(300) < chances).astype(float) for _ in range(10)]
        for look in range(1, 10):
            best = max(range(look), key=lambda number: scores[number].mean())
            level, best_level = split_level(spend(0.05, look), look)
            pairs = {look - 1: level} | ({best: best_level} if best != look - 1 else {})
            results = [(compared(scores[one], scores[look]), limit) for one, limit in pairs.items()]
            alarms += any(drop_p_value(found) <= limit for found, limit in results)
        fallen = scores[-1] * (rng.random(300) > 0.3)
        seen += drop_p_value(compared(scores[-2], fallen)) <= split_level(spend(0.05, 10), 10)[0]
    assert alarms <= 2
    assert seen >= 24
