"""Comparing two tables of samples: pairing, clustering, and naming what else differs."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.comparison import CompareConfig
from schemas.errors import DatasetError, DistributedEvaluationError
from tasks.metrics.comparison import compare

CONFIG = CompareConfig(num_resamples=499)


def table(scores: dict[str, list[float | None]], **constant: Any) -> pa.Table:
    """Samples with the scores of each item in order of repeat."""
    rows = [
        {"item_id": item, "repeat": repeat, "score": score, **constant}
        for item, repeats in scores.items()
        for repeat, score in enumerate(repeats)
    ]
    return pa.Table.from_pylist(rows)


def drawn(rng: np.random.Generator, chances: np.ndarray, num_repeats: int) -> pa.Table:
    """Samples of items with the given chances of being right."""
    return table({f"i{item}": rng.binomial(1, chance, num_repeats).tolist() for item, chance in enumerate(chances)})


def test_a_paired_difference_by_hand() -> None:
    baseline = table({"a": [1, 0], "b": [0, 0], "c": [1, 1], "d": [0, 1]})
    candidate = table({"a": [1, 1], "b": [1, 0], "c": [1, 1], "d": [1, 1]})
    found = compare(baseline, candidate)
    gaps = [0.5, 0.5, 0.0, 0.5]
    stderr = np.std(gaps, ddof=1) / 2
    assert found.paired
    assert found.num_items == 4
    assert found.difference == pytest.approx(np.mean(gaps))
    assert (found.baseline_mean, found.candidate_mean) == (0.5, 0.875)
    assert found.stderr == pytest.approx(stderr)
    assert (found.ci_low, found.ci_high) == pytest.approx(
        (0.375 - 3.18245 * stderr, 0.375 + 3.18245 * stderr), abs=1e-5
    )
    assert found.p_value == pytest.approx(2 / 8)
    assert found.minimum_detectable_effect == pytest.approx((3.18245 + 0.97847) * stderr, rel=1e-4)
    assert found.differences == ()


def test_copies_of_the_rows_add_no_certainty() -> None:
    rng = np.random.default_rng(3)
    scores = [{f"i{item}": [float(rng.random() < 0.5)] for item in range(40)} for _ in range(2)]
    copies = [{item: repeats * 10 for item, repeats in side.items()} for side in scores]
    once = compare(table(scores[0]), table(scores[1]), config=CONFIG)
    often = compare(table(copies[0]), table(copies[1]), config=CONFIG)
    assert often.p_value == once.p_value
    assert often.stderr == pytest.approx(once.stderr)


def test_clustered_rows_reject_a_true_null_as_often_as_stated_and_cover_it() -> None:
    rng = np.random.default_rng(11)
    num_rejected = num_covered = 0
    for _ in range(300):
        sides = [drawn(rng, rng.uniform(0, 1, 50), 10) for _ in range(2)]
        found = compare(*sides, config=CONFIG)
        assert found.p_value is not None
        assert found.ci_low is not None
        assert found.ci_high is not None
        num_rejected += found.p_value <= 0.05
        num_covered += found.ci_low <= 0 <= found.ci_high
    # 15 and 285 expected, standard deviation 3.8
    assert 4 <= num_rejected <= 26
    assert 274 <= num_covered <= 296


def test_a_real_difference_of_the_detectable_size_is_seen() -> None:
    rng = np.random.default_rng(13)
    found = [
        compare(drawn(rng, chances, 10), drawn(rng, np.minimum(chances + 0.1, 1), 10), config=CONFIG)
        for chances in rng.uniform(0, 0.9, (40, 100))
    ]
    assert np.mean([one.p_value is not None and one.p_value <= 0.05 for one in found]) > 0.9


def test_a_run_against_itself_shows_nothing_with_a_width() -> None:
    run = table({f"i{item}": [float(item % 2)] for item in range(100)})
    found = compare(run, run)
    assert (found.difference, found.p_value, found.stderr) == (0.0, 1.0, None)
    assert (found.ci_low, found.ci_high) == pytest.approx((-0.037, 0.037), abs=1e-3)
    assert found.minimum_detectable_effect is None


@pytest.mark.parametrize(("before", "after"), [({"a": [1]}, {"a": [0]}), ({"a": [1.0, 0.0]}, {"a": [1.0, 1.0]})])
def test_one_item_has_a_difference_and_nothing_else(
    before: dict[str, list[float | None]], after: dict[str, list[float | None]]
) -> None:
    found = compare(table(before), table(after))
    assert found.difference is not None
    assert (found.stderr, found.ci_low, found.p_value, found.minimum_detectable_effect) == (None, None, None, None)


def test_nothing_scored_is_undefined() -> None:
    found = compare(table({"a": [None]}), table({"a": [1.0]}))
    assert (found.difference, found.ci_low, found.p_value, found.baseline_mean) == (None, None, None, None)
    assert found.differences == ("samples without a score 1 -> 0",)


def test_independent_sets_are_compared_as_such() -> None:
    rng = np.random.default_rng(17)
    baseline = table({f"a{item}": rng.binomial(1, 0.3, 4).tolist() for item in range(60)})
    candidate = table({f"b{item}": rng.binomial(1, 0.7, 4).tolist() for item in range(80)})
    found = compare(baseline, candidate)
    assert not found.paired
    assert found.num_items == 140
    assert found.p_value is not None
    assert found.p_value < 1e-6
    assert found.ci_low is not None
    assert found.ci_low > 0.2
    assert found.differences == ("no item is shared: compared as independent sets",)


def test_without_an_item_id_only_the_difference_is_known() -> None:
    baseline, candidate = pa.table({"score": [1.0, 0.0]}), pa.table({"score": [1.0, 1.0]})
    found = compare(baseline, candidate)
    assert found.difference == pytest.approx(0.5)
    assert (found.ci_low, found.p_value, found.stderr) == (None, None, None)
    assert "no column item_id" in found.differences[0]


def test_prompts_pair_where_ids_are_absent() -> None:
    before = pa.table({"prompt": ["p", "q", "p", "q"], "score": [1.0, 0.0, 0.0, 0.0], "repeat": [0, 0, 1, 1]})
    after = pa.table({"prompt": ["q", "p"], "verdict": ["correct", "correct"]})
    found = compare(before, after)
    assert found.paired
    assert found.difference == pytest.approx(0.75)


def test_what_else_differs_is_named() -> None:
    before = table({"a": [1.0, 0.0], "b": [1.0, 1.0], "x": [0.0, 0.0]}, dataset="one", gold="1", prompt_hash="h")
    after = table({"a": [1.0], "b": [0.0], "y": [None]}, dataset="two", gold="1", prompt_hash="g")
    assert compare(before, after).differences == (
        "dataset one -> two",
        "prompts of 2 of 2 shared items differ",
        "1 items are scored in the baseline only and left out",
        "scored samples per item 2 -> 1",
        "samples without a score 0 -> 1",
    )


def versions(num_shared: int, num_changed: int = 0) -> tuple[pa.Table, pa.Table]:
    """Runs on two versions that share some items, of which some have another gold in the second."""
    old = {f"old{item}": [0.0] for item in range(30)} | {f"s{item:02}": [0.0] for item in range(num_shared)}
    new = {f"s{item:02}": [float(item % 2)] for item in range(num_shared)} | {f"new{item}": [1.0] for item in range(30)}
    golds = {f"s{item:02}": "other" for item in range(num_changed)}
    sides = (table(old, dataset_version="v1"), table(new, dataset_version="v2"))
    before, after = (
        side.append_column("gold", pa.array([changed.get(one, "1") for one in side["item_id"].to_pylist()]))
        for side, changed in zip(sides, ({}, golds), strict=True)
    )
    return before, after


def test_versions_are_linked_over_the_items_that_both_ask_alike() -> None:
    found = compare(*versions(26, num_changed=2))
    assert found.is_linked
    assert found.paired
    assert found.num_items == 24
    assert (found.baseline_mean, found.candidate_mean, found.difference) == (0.0, 0.5, 0.5)
    assert found.stderr == pytest.approx(np.std([0.0, 1.0] * 12, ddof=1) / np.sqrt(24))
    assert found.differences == (
        "dataset_version v1 -> v2",
        "compared over the 24 items that both versions ask alike, and over no others",
        "32 items are scored in the baseline only and left out",
        "32 items are scored in the candidate only and left out",
    )


def test_versions_that_share_too_few_items_are_refused() -> None:
    with pytest.raises(
        DatasetError, match=r"v1 -> v2: the two share 19 items .* at least 20 .*golds of 3 shared"
    ) as told:
        compare(*versions(22, num_changed=3))
    assert "refresh.anchor_ratio" in str(told.value)
    assert compare(*versions(22, num_changed=3), config=CompareConfig(min_shared_items=19)).is_linked
    with pytest.raises(DatasetError, match="share 0 items"):
        compare(*versions(0))


def test_one_version_is_not_linked() -> None:
    old, _ = versions(22)
    assert not compare(old, old).is_linked


def test_tables_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(DatasetError, match="candidate has neither score nor verdict"):
        compare(table({"a": [1.0]}), pa.table({"item_id": ["a"]}))
    twice = pa.concat_tables([table({"a": [1.0]})] * 2)
    with pytest.raises(DistributedEvaluationError, match="more than once"):
        compare(twice, twice)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=15), st.randoms())
def test_order_changes_nothing_and_swapping_sides_the_sign(
    pairs: list[tuple[int, int]], rng: "st.random.Random"
) -> None:
    before, after = (
        table({f"i{item}": [side / 4] for item, side in enumerate(column)}) for column in zip(*pairs, strict=True)
    )
    order = list(range(len(pairs)))
    rng.shuffle(order)
    found = compare(before, after, config=CONFIG)
    assert compare(before.take(order), after, config=CONFIG) == found
    swapped = compare(after, before, config=CONFIG)
    assert swapped.difference == pytest.approx(-(found.difference or 0))
    assert swapped.p_value == found.p_value
    if found.ci_low is not None and found.ci_high is not None:
        assert (swapped.ci_low, swapped.ci_high) == pytest.approx((-found.ci_high, -found.ci_low))
        assert -1 <= found.ci_low <= (found.difference or 0) + 1e-12


@pytest.mark.parametrize("shared", [True, False])
def test_items_of_one_cluster_count_as_one(shared: bool) -> None:
    """Each question asked eight times under ids of its own compares as the question alone, but for the item count."""
    rng = np.random.default_rng(3)
    scores = [rng.binomial(1, chance, 40).tolist() for chance in (0.4, 0.7)]

    def side(which: int, copies: int) -> pa.Table:
        prefix = "i" if shared else f"{which}-"
        rows = [
            {"item_id": f"{prefix}{seed}-{copy}", "repeat": 0, "score": score, "cluster_id": f"{prefix}{seed}"}
            for seed, score in enumerate(scores[which])
            for copy in range(copies)
        ]
        return pa.Table.from_pylist(rows)

    alone, together = (compare(side(0, copies), side(1, copies), config=CONFIG) for copies in (1, 8))
    assert together.paired is shared
    assert (together.num_items, together.num_clusters) == (alone.num_items * 8, alone.num_clusters)
    for name in ("difference", "stderr", "ci_low", "ci_high", "p_value", "minimum_detectable_effect"):
        assert getattr(together, name) == pytest.approx(getattr(alone, name)), name


def test_clusters_of_one_side_hold_for_both() -> None:
    old = table({"a": [1], "b": [0], "c": [1]})
    new = table({"a": [0], "b": [1], "c": [1]}).append_column("cluster_id", [["s", "s", None]])
    assert compare(old, new).num_clusters == compare(new, old).num_clusters == 2
    assert compare(old, old).num_clusters == 3
