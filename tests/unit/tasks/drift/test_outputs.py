"""Drift of what a model makes of the same problems."""

import numpy as np
import pyarrow as pa
import pytest

from schemas.errors import DatasetError
from tasks.drift.outputs import compare_outputs


def draw_samples(rng: np.random.Generator, *, num_items: int = 150, repeats: int = 4, **change: float) -> pa.Table:
    """Samples whose items differ in length as problems do; `longer` and `silent` change the model."""
    item = np.repeat(np.arange(num_items), repeats)
    typical = 200 + 60 * np.sin(np.arange(num_items))
    lengths = (typical[item] + rng.normal(0, 40, len(item))) * (1 + change.get("longer", 0.0))
    has_none = rng.random(len(item)) < 0.05 + change.get("silent", 0.0)
    return pa.table(
        {
            "item_id": [f"i{number}" for number in item],
            "num_completion_tokens": lengths.astype(int),
            "entropy": rng.gamma(4, 0.1, len(item)),
            "verdict": np.where(has_none, "no_answer", "wrong"),
            "finish_reason": ["stop"] * len(item),
        }
    )


def test_the_same_model_is_silent() -> None:
    rng = np.random.default_rng(1)
    alarms = [compare_outputs(draw_samples(rng), draw_samples(rng)) for _ in range(40)]
    assert sum(any(one.drifted for one in features) for features in alarms) <= 1
    assert {one.kind for one in alarms[0]} == {"output"}


def test_what_changed_is_named() -> None:
    rng = np.random.default_rng(2)
    before = draw_samples(rng)
    for change, expected in (({"longer": 0.15}, "response_length"), ({"silent": 0.1}, "no_answer_rate")):
        after = compare_outputs(before, draw_samples(rng, **change))
        assert {one.name for one in after if one.drifted} == {expected}


def test_repeats_of_an_item_are_not_independent() -> None:
    rng = np.random.default_rng(3)
    before, after = (draw_samples(rng, repeats=1) for _ in range(2))
    once = compare_outputs(before, after)
    copied = compare_outputs(*(pa.concat_tables([table] * 8) for table in (before, after)))
    assert [one.p_value for one in copied] == [one.p_value for one in once]


def test_items_of_one_cluster_are_not_independent() -> None:
    rng = np.random.default_rng(3)
    before, after = (draw_samples(rng, repeats=1) for _ in range(2))
    once = compare_outputs(before, after)
    clustered: list[pa.Table] = []
    for table in (before, after):
        ids = table.column("item_id").to_pylist()
        copies = [table.set_column(0, "item_id", [[f"{name}-{copy}" for name in ids]]) for copy in range(8)]
        clustered.append(pa.concat_tables([copy.append_column("cluster_id", [ids]) for copy in copies]))
    together = compare_outputs(*clustered)
    assert [one.p_value for one in together] == [one.p_value for one in once]
    assert [one.num_current for one in together] == [8 * one.num_current for one in once]


def test_what_is_unknown_is_left_out() -> None:
    before = pa.table({"item_id": ["a", "b"], "num_completion_tokens": [3, None], "verdict": ["correct", "failed"]})
    after = pa.table({"item_id": ["a", "b"], "num_completion_tokens": [3, 4], "verdict": ["correct", "wrong"]})
    features = compare_outputs(before, after)
    assert [(one.name, one.num_current, one.p_value) for one in features] == [
        ("response_length", 1, None),
        ("no_answer_rate", 1, None),
    ]
    assert not any(one.drifted for one in features)


def test_runs_that_share_nothing_are_refused() -> None:
    table = pa.table({"item_id": ["a"], "verdict": ["wrong"]})
    with pytest.raises(DatasetError, match="the candidate has no column item_id; it has verdict"):
        compare_outputs(table, table.drop_columns("item_id"))
    with pytest.raises(DatasetError, match="share no item"):
        compare_outputs(table, pa.table({"item_id": ["b"], "verdict": ["wrong"]}))
