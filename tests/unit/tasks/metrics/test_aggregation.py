"""Aggregation: known values by hand; order, sharding and duplicates; what absent columns leave out."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import DistributedEvaluationError
from schemas.sections import MetricsConfig
from schemas.states import Verdict
from schemas.tables import METRICS, SAMPLES
from tasks.metrics.aggregation import aggregate, default_pass_ks
from tasks.metrics.estimators import clustered_stderr

SCHEMA = pa.schema([SAMPLES.field(name).with_nullable(True) for name in SAMPLES.names])
Row = dict[str, Any]


def sample(item_id: str, repeat: int, verdict: str = "correct", **more: Any) -> Row:
    """One row as grading leaves it."""
    scored = Verdict(verdict).is_scored
    row: Row = {
        "run_id": "r1",
        "item_id": item_id,
        "repeat": repeat,
        "verdict": verdict,
        "score": float(verdict == "correct") if scored else None,
        "answer": {"correct": "gold", "wrong": "other"}.get(verdict),
        "finish_reason": "length" if verdict == "truncated" else "stop",
        "num_completion_tokens": 10,
        "subsets": [],
    }
    return {**row, **more}


def table(rows: list[Row], *names: str) -> pa.Table:
    """The rows with the named columns, all of `sample`'s when none is."""
    wanted = names or tuple(rows[0])
    return pa.Table.from_pylist(rows, schema=pa.schema([SCHEMA.field(name) for name in wanted]))


def metric(metrics: pa.Table, name: str, subset: str = "all") -> Row:
    """The one row of a metric."""
    (row,) = [row for row in metrics.to_pylist() if row["metric"] == name and row["subset"] == subset]
    return row


TWO_BY_TWO = [
    sample("a", 0, "correct"),
    sample("a", 1, "correct"),
    sample("b", 0, "correct", answer="1/2", num_completion_tokens=30),
    sample("b", 1, "wrong"),
    sample("c", 0, "wrong"),
    sample("c", 1, "timeout"),
]


def test_accuracy_counts_scored_samples_and_names_the_missing() -> None:
    row = metric(aggregate(table(TWO_BY_TWO)), "accuracy")
    assert (row["num_planned"], row["num_scored"], row["num_failed"]) == (6, 5, 1)
    assert row["value"] == pytest.approx(3 / 5)
    # residual sums of the items: 2 - 1.2, 1 - 1.2, 0 - 0.6
    stderr = np.sqrt(3 / 2 * (0.8**2 + 0.2**2 + 0.6**2)) / 5
    assert row["stderr"] == pytest.approx(stderr)
    assert (row["ci_low"], row["ci_high"]) == (0.0, 1.0)
    assert row["higher_is_better"] is True


def test_metrics_per_item_by_hand() -> None:
    metrics = aggregate(table(TWO_BY_TWO))
    assert metric(metrics, "avg@2")["value"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert metric(metrics, "avg@2")["stderr"] == pytest.approx(0.5 / np.sqrt(3))
    assert metric(metrics, "pass@1")["value"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert metric(metrics, "pass@2")["value"] == pytest.approx(1.0)  # c has one scored sample only
    assert metric(metrics, "maj@2")["value"] == pytest.approx((1 + 0.5) / 2)
    assert metric(metrics, "maj_tie_rate@2")["value"] == pytest.approx(1 / 2)
    assert metric(metrics, "response_length")["value"] == pytest.approx((5 * 10 + 30) / 6)
    assert metric(metrics, "response_length")["higher_is_better"] is None


def test_pass_at_k_above_n_is_null() -> None:
    row = metric(aggregate(table(TWO_BY_TWO), config=MetricsConfig(pass_at_k=(4,), maj_at_k=(4,))), "pass@4")
    assert (row["value"], row["stderr"], row["ci_low"]) == (None, None, None)
    assert row["num_planned"] == 6


def test_the_default_ks_are_powers_of_two_and_n() -> None:
    assert [default_pass_ks(n) for n in (0, 1, 2, 6, 8)] == [(1,), (1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]


def test_one_sample_per_item_has_the_wilson_interval() -> None:
    rows = [sample(f"i{index}", 0, "correct" if index < 81 else "wrong") for index in range(263)]
    row = metric(aggregate(table(rows)), "accuracy")
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    p = 81 / 263
    assert row["stderr"] == pytest.approx(np.sqrt(p * (1 - p) / 262))


@pytest.mark.parametrize("n_samples", [1, 4])
def test_no_spread_seen_is_not_a_standard_error_of_zero(n_samples: int) -> None:
    rows = [sample(f"i{index}", repeat) for index in range(20) for repeat in range(n_samples)]
    metrics = aggregate(table(rows))
    row = metric(metrics, "accuracy")
    assert (row["value"], row["stderr"]) == (1.0, None)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((0.8389, 1.0), abs=5e-5)
    length = metric(metrics, "response_length")
    assert (length["value"], length["stderr"], length["ci_low"], length["ci_high"]) == (10.0, None, None, None)


def test_one_item_has_no_error_bars() -> None:
    for row in aggregate(table(TWO_BY_TWO[2:4])).to_pylist():
        assert (row["stderr"], row["ci_low"], row["ci_high"]) == (None, None, None), row["metric"]


def test_nothing_scored_is_null_not_zero() -> None:
    metrics = aggregate(table([sample("a", 0, "failed", finish_reason=None, num_completion_tokens=None)]))
    for row in metrics.to_pylist():
        assert row["value"] is None, row["metric"]
        assert (row["num_planned"], row["num_scored"], row["num_failed"]) == (1, 0, 1)


def test_an_empty_table_has_metrics_without_values() -> None:
    metrics = aggregate(table(TWO_BY_TWO).slice(0, 0))
    assert metrics.schema.equals(METRICS)
    assert set(metrics.column("value").to_pylist()) == {None}
    assert aggregate(table(TWO_BY_TWO).schema.empty_table()).num_rows == metrics.num_rows


def test_rates_tell_the_outcomes_apart() -> None:
    rows = [
        sample("a", 0, "no_answer"),
        sample("b", 0, "truncated"),
        sample("c", 0, "truncated", finish_reason="stop"),
        sample("d", 0, "correct", finish_reason="length"),
        sample("e", 0, "failed", finish_reason=None, num_completion_tokens=None),
    ]
    metrics = aggregate(table(rows))
    assert metric(metrics, "truncation_rate")["value"] == pytest.approx(3 / 4)
    assert metric(metrics, "no_answer_rate")["value"] == pytest.approx(1 / 4)
    assert metric(metrics, "accuracy")["value"] == pytest.approx(1 / 4)
    assert metric(metrics, "response_length")["value"] == pytest.approx(10)


def test_partial_credit_counts_in_avg_and_not_in_accuracy() -> None:
    rows = [sample("a", 0, "wrong", score=0.5), sample("a", 1, "correct"), sample("b", 0, "wrong"), sample("b", 1)]
    metrics = aggregate(table(rows))
    assert metric(metrics, "accuracy")["value"] == pytest.approx(0.5)
    assert metric(metrics, "avg@2")["value"] == pytest.approx((0.75 + 0.5) / 2)


def test_reward_is_reported_where_there_is_one() -> None:
    rows = [sample("a", 0, reward=-1.0), sample("b", 0, reward=2.0), sample("c", 0, reward=None)]
    row = metric(aggregate(table(rows)), "reward")
    assert row["value"] == pytest.approx(0.5)
    assert row["ci_low"] < -1
    assert "reward" not in aggregate(table([sample("a", 0, reward=None)])).column("metric").to_pylist()


def test_a_vote_nobody_knows_leaves_its_item_out() -> None:
    rows = [sample("a", 0, "wrong", answer=None), sample("a", 1), sample("b", 0), sample("b", 1)]
    assert metric(aggregate(table(rows)), "maj@2")["value"] == 1.0
    assert metric(aggregate(table(rows[:2])), "maj@2")["value"] is None


def test_subsets_are_reported_apart() -> None:
    rows = [
        sample("a", 0, "correct", subsets=[("subject", "Algebra"), ("level", "5")]),
        sample("b", 0, "wrong", subsets=[("subject", "Algebra"), ("level", "1")]),
        sample("c", 0, "wrong", subsets=[("subject", "Geo=metry")]),
        sample("d", 0, "failed", subsets=None),
    ]
    metrics = aggregate(table(rows))
    assert list(dict.fromkeys(metrics.column("subset").to_pylist())) == [
        "all",
        "level=1",
        "level=5",
        "subject=Algebra",
        "subject=Geo=metry",
    ]
    row = metric(metrics, "accuracy", "subject=Algebra")
    assert (row["value"], row["num_planned"], row["num_failed"]) == (0.5, 2, 0)
    assert metric(metrics, "accuracy")["num_failed"] == 1
    structs = [{**row, "subsets": dict(row["subsets"] or [])} for row in rows]
    assert aggregate(pa.Table.from_pylist(structs)).equals(metrics)


def test_absent_columns_leave_out_what_needs_them() -> None:
    by_score = aggregate(table(TWO_BY_TWO, "item_id", "repeat", "score"))
    assert by_score.column("metric").to_pylist() == ["accuracy", "avg@2", "pass@1", "pass@2"]
    assert metric(by_score, "accuracy")["value"] == pytest.approx(3 / 5)
    assert (by_score.column("run_id")[0].as_py(), by_score.column("global_step")[0].as_py()) == ("", None)
    by_verdict = aggregate(table(TWO_BY_TWO, "item_id", "verdict"))
    assert metric(by_verdict, "avg@2")["value"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rows", "names", "message"),
    [
        (TWO_BY_TWO, ("repeat", "verdict"), "no column item_id"),
        (TWO_BY_TWO, ("item_id", "repeat"), "neither verdict nor score"),
        ([sample("a", 0), {**sample("b", 0), "item_id": None}], (), "have no item_id"),
        ([sample("a", 0), sample("b", 0, run_id="r2")], (), "run_id is 'r1' and 'r2'"),
        ([{**sample("a", 0), "verdict": "right"}], (), "'right' does not exist"),
    ],
)
def test_tables_that_say_nothing_are_refused(rows: list[Row], names: tuple[str, ...], message: str) -> None:
    with pytest.raises(DistributedEvaluationError, match=message):
        aggregate(table(rows, *names))


ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from(list(Verdict)), st.floats(0, 1), st.integers(0, 2)),
    min_size=1,
    max_size=24,
    unique_by=lambda row: row[:2],
)


def _table(rows: list[tuple[int, int, Verdict, float, int]]) -> pa.Table:
    return table(
        [
            sample(
                f"i{item}",
                repeat,
                verdict,
                reward=score,
                answer=f"{answer}" if verdict in ("correct", "wrong") else None,
                num_completion_tokens=int(score * 100),
                subsets=[("parity", str(item % 2))],
            )
            for item, repeat, verdict, score, answer in rows
        ]
    )


@settings(max_examples=50)
@given(ROWS, st.integers(0, 2**32), st.integers(1, 5))
def test_order_and_sharding_do_not_change_a_bit(
    rows: list[tuple[int, int, Verdict, float, int]], seed: int, num_shards: int
) -> None:
    whole = aggregate(_table(rows))
    shuffled = list(rows)
    random.Random(seed).shuffle(shuffled)
    shards = [shuffled[shard::num_shards] for shard in range(num_shards)]
    merged = pa.concat_tables([_table(shard) for shard in shards if shard])
    assert aggregate(merged).equals(whole)


@settings(max_examples=30)
@given(ROWS, st.data())
def test_a_shard_that_comes_twice_is_refused(
    rows: list[tuple[int, int, Verdict, float, int]], data: st.DataObject
) -> None:
    again = data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=4, unique=True))
    with pytest.raises(DistributedEvaluationError, match="occur more than once"):
        aggregate(pa.concat_tables([_table(rows), _table(again)]))


@settings(max_examples=50)
@given(ROWS)
def test_values_and_intervals_stay_in_bounds(rows: list[tuple[int, int, Verdict, float, int]]) -> None:
    for row in aggregate(_table(rows)).to_pylist():
        assert row["num_scored"] + row["num_failed"] == row["num_planned"]
        assert row["stderr"] is None or row["stderr"] > 0
        assert (row["ci_low"] is None) == (row["ci_high"] is None)
        if row["ci_low"] is not None:
            assert row["ci_low"] <= row["value"] + 1e-12
            assert row["value"] <= row["ci_high"] + 1e-12
        if row["value"] is not None and row["metric"] != "response_length":
            assert 0 <= row["value"] <= 1
            assert row["ci_low"] is None or row["metric"] == "reward" or 0 <= row["ci_low"] <= row["ci_high"] <= 1


def test_parquet_gives_what_memory_gives(tmp_path: Any) -> None:
    pq.write_table(table(TWO_BY_TWO), tmp_path / "samples.parquet")
    assert aggregate(pads.dataset(tmp_path)).equals(aggregate(table(TWO_BY_TWO)))


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        # 10 items x 4 samples, each item with a difficulty of its own; the true mean is 1/2
        chances = rng.uniform(0, 1, 10)
        rows = [
            sample(f"i{item}", repeat, "correct" if rng.random() < chances[item] else "wrong")
            for item in range(10)
            for repeat in range(4)
        ]
        row = metric(aggregate(table(rows, "item_id", "repeat", "verdict")), "accuracy")
        covered += row["ci_low"] <= 0.5 <= row["ci_high"]
    # 95% of 400 is 380, with a standard deviation of 4.4
    assert 365 <= covered <= 395


def test_questions_of_one_cluster_count_as_one_in_every_error_bar() -> None:
    """Eight perturbations that stand or fall together tell no more than their seed question does alone."""
    seeds = [
        sample(f"s{seed:02}", 0, "correct" if seed % 3 else "wrong", subsets=[("kind", "a")]) for seed in range(30)
    ]
    perturbed = [
        sample(
            f"s{seed:02}-{kind}", 0, "correct" if seed % 3 else "wrong", subsets=[("kind", "a")], cluster_id=f"s{seed}"
        )
        for seed in range(30)
        for kind in range(8)
    ]
    alone, together = (metric(aggregate(table(rows)), "accuracy", "kind=a") for rows in (seeds, perturbed))
    assert together["value"] == pytest.approx(alone["value"])
    assert together["stderr"] == pytest.approx(alone["stderr"])
    assert together["stderr"] == pytest.approx((2 / 9 / 29) ** 0.5)
    assert together["num_scored"] == 240
    unnamed = metric(aggregate(table([{**row, "cluster_id": None} for row in perturbed])), "accuracy")
    assert unnamed["stderr"] == pytest.approx((2 / 9 / 239) ** 0.5)


def test_clusters_of_unequal_size_follow_the_formula() -> None:
    verdicts = {"a": "110", "b": "1", "c": "00", None: "10"}
    rows = [
        sample(f"{cluster}{number}", 0, "correct" if one == "1" else "wrong", cluster_id=cluster)
        for cluster, each in verdicts.items()
        for number, one in enumerate(each)
    ]
    scores = [float(one) for each in verdicts.values() for one in each]
    clusters = ["a"] * 3 + ["b"] + ["c"] * 2 + ["d", "e"]
    found = metric(aggregate(table(rows)), "accuracy")
    assert found["stderr"] == pytest.approx(clustered_stderr(scores, clusters))


def test_one_cluster_has_no_error_bars() -> None:
    rows = [sample(f"i{number}", 0, "correct" if number else "wrong", cluster_id="c") for number in range(4)]
    found = metric(aggregate(table(rows)), "accuracy")
    assert (found["value"], found["stderr"], found["ci_low"]) == (0.75, None, None)


def test_self_consistency_is_null_where_answers_were_not_kept() -> None:
    rows = [sample("a", 0, "correct"), sample("a", 1, "correct"), sample("b", 0, "correct"), sample("b", 1, "wrong")]
    agreement = metric(aggregate(table(rows)), "self_consistency")
    assert agreement["value"] == 0.5
    assert agreement["higher_is_better"] is None
    unkept = [{**row, "answer": None} if row["verdict"] == "wrong" else row for row in rows]
    assert metric(aggregate(table(unkept)), "self_consistency")["value"] == 1.0
    assert metric(aggregate(table(unkept[2:])), "self_consistency")["value"] is None
