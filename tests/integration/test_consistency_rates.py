"""How often the comparison of replicas cries wolf, and whether it sees what it says it would: by simulation."""

import numpy as np
import pytest

from tasks.consistency.checker import check_consistency
from tests.support.replica_samples import Shards, blamed, draw_samples, outcomes


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(12)


def test_of_200_healthy_runs_at_most_two_raise_an_alarm(rng: np.random.Generator) -> None:
    alarms, plain_alarms = 0, 0
    for _ in range(200):
        shards = Shards(
            num_replicas=int(rng.choice([2, 3, 8, 24, 96])),
            num_items=int(rng.choice([32, 100, 250, 1000], p=[0.4, 0.3, 0.2, 0.1])),
            n_samples=int(rng.choice([1, 4], p=[0.8, 0.2])),
            accuracy=float(rng.choice([0.01, 0.1, 0.4, 0.7, 0.95])),
        )
        report = check_consistency(draw_samples(shards, rng))
        alarms += report.verdict == "disagree"
        plain_alarms += outcomes(report)["accuracy_absolute"] == "violated"
    assert alarms <= 2
    assert plain_alarms > 50, "the plain rule is shown, and cries wolf"


def test_repeats_of_one_item_do_not_count_as_so_many_samples(rng: np.random.Generator) -> None:
    """16 repeats of 40 items look like 640 samples; taken for such they would raise alarms without end."""
    shards = Shards(num_replicas=4, num_items=40, n_samples=16, accuracy=0.5)
    tables = [draw_samples(shards, rng) for _ in range(20)]
    by_item = [check_consistency(table).verdict for table in tables]
    by_prompt = [check_consistency(table.drop_columns(["item_id"])).verdict for table in tables]
    by_sample = [check_consistency(table.drop_columns(["item_id", "prompt_hash"])).verdict for table in tables]
    assert "disagree" not in by_item + by_prompt
    assert by_sample.count("disagree") > 5


def test_a_difference_that_is_said_to_be_detectable_is_detected(rng: np.random.Generator) -> None:
    shards = Shards(num_replicas=4, num_items=250, accuracy=0.7)
    detectable = check_consistency(draw_samples(shards, rng)).detectable or 0.0
    bad = Shards(num_replicas=4, num_items=250, accuracy=0.7, bad=1, accuracy_lost=detectable / 0.85)
    found = [blamed(check_consistency(draw_samples(bad, rng))) for _ in range(20)]
    assert sum(names == [1] for names in found) >= 12
