"""The plan decides samples; the division of work never does."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from schemas.identity import SampleKey
from tasks.inference.exchange.work_table import sample_keys
from tasks.inference.planning.plan import default_batch_size, divide_work, remaining_work
from tests.support.plans import plan_of


def test_the_key_follows_from_content() -> None:
    assert plan_of(3, 2).plan_key == plan_of(3, 2).plan_key
    assert (
        len({plan_of(3, 2).plan_key, plan_of(3, 2, seed=2).plan_key, plan_of(4, 2).plan_key, plan_of(3, 1).plan_key})
        == 4
    )


def test_refused_items_are_planned_but_not_worked_on() -> None:
    plan = plan_of(2, 3, num_refused=1)
    assert plan.num_planned == 9
    assert len(list(remaining_work(plan, set()))) == 6


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 5), st.data())
def test_replicas_together_get_exactly_what_remains(
    num_items: int, repeats: int, replicas: int, data: st.DataObject
) -> None:
    plan = plan_of(num_items, repeats)
    every = set(remaining_work(plan, set()))
    done = data.draw(st.sets(st.sampled_from(sorted(every))))
    work = divide_work(plan, done, replicas)
    rows = [SampleKey(row["item_id"], row["repeat"]) for table in work for row in table.to_pylist()]
    assert len(rows) == len(set(rows))
    assert set(rows) == every - done
    assert len(work) == replicas


@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 7))
def test_a_fresh_run_is_balanced_to_one_item(num_items: int, repeats: int, replicas: int) -> None:
    sizes = [table.num_rows for table in divide_work(plan_of(num_items, repeats), set(), replicas)]
    assert max(sizes) - min(sizes) <= repeats


@given(st.lists(st.floats(1, 1e5), min_size=1, max_size=6), st.integers(1, 3), st.integers(1, 3), st.data())
def test_known_lengths_balance_the_replicas_to_the_bound_of_lpt(
    lengths: list[float], repeats: int, replicas: int, data: st.DataObject
) -> None:
    plan = plan_of(len(lengths), repeats)
    every = sorted(remaining_work(plan, set()))
    done = data.draw(st.sets(st.sampled_from(every)))
    known = {f"i{number}": length for number, length in enumerate(lengths)}
    shares = [sample_keys(table) for table in divide_work(plan, done, replicas, known)]
    assert sorted(key for share in shares for key in share) == sorted(set(every) - done)
    items = Counter(key.item_id for share in shares for key in share)
    jobs = [known[item_id] * count for item_id, count in items.items()]
    best = min(
        max(
            sum(job for job, place in zip(jobs, places, strict=True) if place == replica) for replica in range(replicas)
        )
        for places in product(range(replicas), repeat=len(jobs))
    )
    makespan = max(sum(known[key.item_id] for key in share) for share in shares)
    assert makespan <= (4 / 3 - 1 / (3 * replicas)) * best * (1 + 1e-9)


def test_items_of_unknown_length_count_as_usual_ones_and_the_longest_come_first() -> None:
    plan = plan_of(5, 1)
    lengths = {"i0": 10.0, "i1": 100.0, "i2": 40.0}  # 50 on average
    shares = [[key.item_id for key in sample_keys(table)] for table in divide_work(plan, set(), 2, lengths)]
    assert shares == [["i1", "i2"], ["i3", "i4", "i0"]]


def test_engines_have_batch_sizes_of_their_own() -> None:
    assert default_batch_size("vllm", on_gpu=True) > default_batch_size("transformers", on_gpu=False)
