"""Replicas that agree raise no alarm, one that does not is named, and what cannot be told is said."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.consistency import CheckOutcome, ConsistencyCheck, ConsistencyConfig
from schemas.errors import DistributedEvaluationError
from tasks.consistency.checker import check_consistency
from tasks.consistency.report import summarise
from tests.support.replica_samples import Shards, blamed, draw_samples, outcomes, with_column


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(12)


@pytest.mark.parametrize(
    ("shards", "measure"),
    [
        (Shards(num_replicas=8, num_items=250, bad=3, accuracy_lost=0.3), "accuracy"),
        (Shards(num_replicas=4, num_items=64, bad=3, accuracy_lost=0.6, accuracy=0.7), "accuracy"),
        (Shards(num_replicas=96, num_items=200, bad=3, accuracy_lost=0.4), "accuracy"),
        (Shards(num_replicas=8, num_items=250, bad=3, length_factor=1.8), "length"),
        (Shards(num_replicas=8, num_items=100, bad=3, logprob_shift=0.3), "mean_logprob"),
        (Shards(num_replicas=3, num_items=250, bad=2, accuracy_lost=0.5, n_samples=2), "accuracy"),
    ],
)
def test_one_bad_replica_is_named_alone(shards: Shards, measure: str, rng: np.random.Generator) -> None:
    report = check_consistency(draw_samples(shards, rng))
    assert report.verdict == "disagree"
    assert blamed(report) == [shards.bad]
    assert outcomes(report)[measure] == "violated"
    assert f"replica {shards.bad} " in report.message


def test_of_two_that_differ_nobody_can_say_which_is_wrong(rng: np.random.Generator) -> None:
    report = check_consistency(draw_samples(Shards(num_replicas=2, num_items=250, bad=1, accuracy_lost=0.4), rng))
    assert (report.verdict, blamed(report)) == ("disagree", [0, 1])


def test_agreement_says_what_would_have_been_seen(rng: np.random.Generator) -> None:
    few = check_consistency(draw_samples(Shards(num_replicas=4, num_items=250), rng))
    many = check_consistency(draw_samples(Shards(num_replicas=4, num_items=1000), rng))
    assert few.verdict == many.verdict == "agree"
    assert few.detectable is not None
    assert many.detectable is not None
    assert few.detectable == pytest.approx(2 * many.detectable, rel=0.1)
    assert f"off by {few.detectable:.2g} would have been seen" in few.message


def check_of(name: str, outcome: CheckOutcome, *, decides: bool = True) -> ConsistencyCheck:
    return ConsistencyCheck(check=name, outcome=outcome, decides=decides, message=name)


@pytest.mark.parametrize(
    ("earlier", "exceptions"),
    [
        ([], ""),
        ([check_of("weights", "passed")], ""),
        ([check_of("weights", "cannot_tell")], "weights"),
        ([check_of("device", "cannot_tell", decides=False)], "device"),
        ([check_of("weights", "cannot_tell"), check_of("canaries", "cannot_tell")], "weights, canaries"),
    ],
)
def test_agreement_names_what_could_not_be_compared(
    earlier: list[ConsistencyCheck], exceptions: str, rng: np.random.Generator
) -> None:
    report = check_consistency(draw_samples(Shards(num_replicas=4, num_items=250), rng), earlier=earlier)
    assert report.verdict == "agree"
    said = f"nothing can be said of {exceptions}; " if exceptions else ""
    assert report.message.startswith(f"4 replicas agree; {said}a replica whose ")
    heading = "## Replicas: they agree in what could be compared" if exceptions else "## Replicas: they agree"
    assert summarise(report).splitlines()[0] == heading


@pytest.mark.parametrize("num_digits", [12, 31, 32, 40, 64])
def test_the_page_cuts_digests_and_nothing_else(num_digits: int, rng: np.random.Generator) -> None:
    word = ("0123456789abcdef" * 4)[:num_digits]
    found = check_of("weights", "passed").model_copy(update={"message": f"the same for 2 replicas ({word}), 20260101"})
    page = summarise(check_consistency(draw_samples(Shards(num_replicas=2, num_items=9), rng), earlier=[found]))
    shown = "0123456789ab…" if num_digits >= 32 else word
    assert f"the same for 2 replicas \\({shown}\\), 20260101" in page


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["item_id", "score"], "no sample names the replica"),
        (["item_id", "replica"], "no sample has a verdict, score, answer, length or log-probability"),
    ],
)
def test_what_is_not_known_is_said(columns: list[str], message: str, rng: np.random.Generator) -> None:
    report = check_consistency(draw_samples(Shards(num_replicas=4, num_items=50), rng).select(columns))
    assert report.verdict == "cannot_tell"
    assert message in report.message


@pytest.mark.parametrize("rule", ["residual", "absolute"])
def test_one_replica_cannot_be_compared(rule: str, rng: np.random.Generator) -> None:
    config = ConsistencyConfig.model_validate({"rule": rule})
    report = check_consistency(draw_samples(Shards(num_replicas=1, num_items=50), rng), config=config)
    assert (report.verdict, blamed(report)) == ("cannot_tell", [])
    assert "one replica made all samples" in report.message


def test_no_samples_cannot_be_compared(rng: np.random.Generator) -> None:
    table = draw_samples(Shards(num_replicas=2, num_items=5), rng).slice(0, 0)
    assert check_consistency(table).verdict == "cannot_tell"


def test_too_few_samples_cannot_tell_and_say_so(rng: np.random.Generator) -> None:
    report = check_consistency(draw_samples(Shards(num_replicas=4, num_items=3), rng))
    assert report.verdict == "cannot_tell"
    assert "too few samples" in report.message


@pytest.mark.parametrize("columns", [["num_completion_tokens"], ["score"], ["verdict"], ["answer"], ["mean_logprob"]])
def test_any_one_measure_is_enough(columns: list[str], rng: np.random.Generator) -> None:
    table = draw_samples(Shards(num_replicas=4, num_items=250), rng)
    table = table.append_column("answer", pa.array(["1", "1", "1", "1", None] * (table.num_rows // 5), pa.string()))
    assert check_consistency(table.select(["item_id", "replica", *columns])).verdict == "agree"


def test_missing_numbers_are_left_out(rng: np.random.Generator) -> None:
    table = draw_samples(Shards(num_replicas=4, num_items=100), rng)
    holes = [float("nan"), float("inf"), None, -0.5] * 100
    report = check_consistency(with_column(table, "mean_logprob", holes))
    assert all(replica.mean_logprob in (None, -0.5) for replica in report.replicas)


def test_samples_without_a_maker_or_a_score_do_not_count(rng: np.random.Generator) -> None:
    table = draw_samples(Shards(num_replicas=2, num_items=100), rng)
    verdicts = table.column("verdict").to_pylist()
    verdicts[::2] = ["crashed"] * 100
    table = with_column(table, "verdict", verdicts)
    replicas = table.column("replica").to_pylist()
    replicas[:10] = [None] * 10
    report = check_consistency(with_column(table, "replica", replicas))
    assert [replica.num_samples for replica in report.replicas] == [95, 95]
    assert report.replicas[0].accuracy is None


def test_a_verdict_that_does_not_exist_is_an_error(rng: np.random.Generator) -> None:
    table = draw_samples(Shards(num_replicas=2, num_items=2), rng)
    with pytest.raises(DistributedEvaluationError, match="'fine' does not exist"):
        check_consistency(with_column(table, "verdict", ["fine"] * 4))


def test_the_plain_rule_decides_only_when_chosen(rng: np.random.Generator) -> None:
    table = draw_samples(Shards(num_replicas=8, num_items=32), rng)
    by_residual = check_consistency(table)
    by_distance = check_consistency(table, config=ConsistencyConfig(rule="absolute"))
    tolerant = check_consistency(table, config=ConsistencyConfig(rule="absolute", tolerance=0.9))
    assert by_residual.verdict == "agree"
    assert not blamed(by_residual)
    assert outcomes(by_residual)["accuracy_absolute"] == "violated"
    assert by_distance.verdict == "disagree"
    assert "beyond consistency.tolerance 0.05" in by_distance.message
    assert tolerant.verdict == "agree"


def test_the_replica_with_another_prompt_is_named_though_others_share_its_items(rng: np.random.Generator) -> None:
    table = draw_samples(Shards(num_replicas=4, num_items=100, n_samples=4), rng)
    replicas = rng.integers(0, 4, table.num_rows).tolist()
    hashes = table.column("prompt_hash").to_pylist()
    changed = [f"other {text}" if replica == 2 else text for text, replica in zip(hashes, replicas, strict=True)]
    shared = with_column(table, "replica", replicas)
    report = check_consistency(with_column(shared, "prompt_hash", changed))
    assert (report.verdict, blamed(report)) == ("disagree", [2])
    assert "from another prompt" in report.message
    assert outcomes(check_consistency(shared))["prompts"] == "passed"


def test_of_two_prompts_for_one_item_nobody_can_say_which_is_wrong() -> None:
    table = pa.table({"item_id": ["a", "a"], "replica": [0, 1], "prompt_hash": ["x", "y"]})
    assert blamed(check_consistency(table)) == [0, 1]
    planned = check_consistency(table, planned_prompts={"a": "y"})
    assert (planned.verdict, blamed(planned)) == ("disagree", [0])


def test_a_launch_is_compared_with_those_of_its_own_attempt(rng: np.random.Generator) -> None:
    """What a killed attempt left behind for the next is longer than what it had finished."""
    first = draw_samples(Shards(num_replicas=4, num_items=250), rng)
    tokens = 4 * first.column("num_completion_tokens").to_numpy()
    second = with_column(first, "num_completion_tokens", tokens.tolist())
    report = check_consistency(pa.concat_tables([first, with_column(second, "attempt", [2] * first.num_rows)]))
    assert report.verdict == "agree"
    assert [(replica.number, replica.attempt) for replica in report.replicas] == [
        (number, attempt) for attempt in (1, 2) for number in range(4)
    ]


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 5))
def test_the_order_of_the_samples_does_not_matter(seed: int, num_replicas: int) -> None:
    rng = np.random.default_rng(seed)
    table = draw_samples(Shards(num_replicas=num_replicas, num_items=20, n_samples=2), rng)
    shuffled = table.take(rng.permutation(table.num_rows))
    one, other = check_consistency(table), check_consistency(shuffled)
    assert one.verdict == other.verdict
    for mine, theirs in zip(one.replicas, other.replicas, strict=True):
        assert mine.accuracy == pytest.approx(theirs.accuracy)
        assert mine.residuals == pytest.approx(theirs.residuals, abs=1e-9)


@pytest.mark.parametrize("has_verdict", [True, False])
def test_accuracy_is_the_share_of_correct_samples_whatever_partial_credit_there_is(has_verdict: bool) -> None:
    samples = pa.table(
        {
            "item_id": ["a", "b", "c", "d"],
            "replica": pa.array([0, 0, 1, 1], pa.int32()),
            "verdict": ["correct", "wrong", "wrong", "timeout"],
            "score": pa.array([1.0, 0.4, 0.3, None], pa.float64()),
        }
    )
    report = check_consistency(samples if has_verdict else samples.drop_columns(["verdict"]))
    assert [replica.accuracy for replica in report.replicas] == [0.5, 0.0]
