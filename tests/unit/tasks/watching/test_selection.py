"""What is wanted of what has landed: a pure function, and what was wanted once stays wanted."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.config import EvaluationConfig
from schemas.errors import ConfigError
from schemas.training_position import TrainingPosition
from schemas.watch import LandedCheckpoint
from tasks.watching.selection import check_selection, newest_of_each_training, select_checkpoints

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(days=30)


def landed(
    number: int,
    step: int | None,
    *,
    epoch: int | None = None,
    minute: float = 0.0,
    first_step: int = 1,
    path: str = "",
) -> LandedCheckpoint:
    return LandedCheckpoint(
        mark=f"m{number}",
        path=Path(path or f"/ck/{number}"),
        layout="huggingface",
        position=TrainingPosition(global_step=step, epoch=epoch),
        first_step=first_step,
        number=number,
        saved_at=START + timedelta(minutes=minute or number),
        landed_at=START + timedelta(minutes=minute or number),
        model_name=str(number),
    )


def config(*, evaluator: dict[str, object] | None = None, **watch: object) -> EvaluationConfig:
    return EvaluationConfig.model_validate(
        {"actor": {"path": "c"}, "valid_dataset": {"path": "d"}, "evaluator": evaluator or {}, "watch": watch}
    )


def steps(chosen: list[LandedCheckpoint]) -> list[int | None]:
    return [one.position.global_step for one in chosen]


def test_all_are_wanted_the_newest_first_by_default() -> None:
    known = [landed(1, 10), landed(2, 30), landed(3, 20)]
    assert steps(select_checkpoints(known, config(), now=NOW)) == [30, 20, 10]
    assert steps(select_checkpoints(known, config(order="oldest"), now=NOW)) == [10, 20, 30]


def test_one_without_a_step_has_its_place_by_when_it_was_saved() -> None:
    base, first, last, best = landed(4, None, minute=1), landed(2, 10), landed(3, 20), landed(1, None, minute=4)
    known = [best, last, first, base]
    assert select_checkpoints(known, config(order="oldest"), now=NOW) == [base, first, last, best]
    ends = config(order="oldest", every=100, first=True, final_after_s=60)
    assert select_checkpoints(known, ends, now=NOW) == [base, best]
    assert select_checkpoints(known[:3], ends, now=NOW) == [first, best]


def test_the_last_of_a_training_is_what_it_saved_last_whatever_an_earlier_one_has_left() -> None:
    left, again = landed(1, 300, minute=1, path="/ck/300"), landed(2, 200, minute=2, path="/ck/200")
    other = landed(3, 900, minute=0.5, path="/other/900")
    assert newest_of_each_training([left, again, other]) == {"m2", "m3"}
    ends = config(every=100, final_after_s=60)
    assert select_checkpoints([left, again], ends, now=NOW) == [again]


@pytest.mark.parametrize(
    ("evaluator", "watch", "is_asked"),
    [
        ({}, {}, True),
        ({}, {"select": "frequency"}, False),
        ({"freq_secs": 60}, {"select": "frequency"}, True),
        ({"eval_before_train": True}, {"select": "frequency"}, True),
        ({}, {"select": "frequency", "first": True}, True),
        ({}, {"select": "frequency", "final_after_s": 0.0}, True),
    ],
)
def test_a_configuration_that_asks_for_no_checkpoint_is_refused(
    evaluator: dict[str, object], watch: dict[str, object], is_asked: bool
) -> None:
    with nullcontext() if is_asked else pytest.raises(ConfigError, match=r"freq_steps and freq_secs are all null.*set"):
        check_selection(config(evaluator=evaluator, **watch))


def test_every_third_counts_as_they_landed() -> None:
    known = [landed(number, number * 10) for number in range(1, 8)]
    assert steps(select_checkpoints(known, config(every=3, order="oldest"), now=NOW)) == [30, 60]
    first = config(every=3, order="oldest", first=True)
    assert steps(select_checkpoints(known, first, now=NOW)) == [10, 30, 60]
    asked = config(every=3, order="oldest", evaluator={"eval_before_train": True})
    assert steps(select_checkpoints(known, asked, now=NOW)) == [10, 30, 60]


@pytest.mark.parametrize(
    ("first_step", "found", "wanted"),
    [
        (0, range(12), [2, 5, 8, 11]),
        (1, range(1, 13), [3, 6, 9, 12]),
        (0, (1, 4, 5, 9, 10), [4, 5, 9]),
        (1, (100, 200), [100, 200]),
    ],
)
def test_steps_fall_due_as_the_trainers_evaluator_counts(first_step: int, found: list[int], wanted: list[int]) -> None:
    known = [landed(number, step, first_step=first_step) for number, step in enumerate(found, start=1)]
    chosen = select_checkpoints(known, config(select="frequency", order="oldest", evaluator={"freq_steps": 3}), now=NOW)
    assert steps(chosen) == wanted


def test_an_epoch_ends_with_its_last_checkpoint_where_names_tell_the_epoch() -> None:
    known = [landed(n + 1, n, epoch=n // 5, first_step=0) for n in range(15)]
    by_epoch = config(select="frequency", order="oldest", evaluator={"freq_epochs": 1})
    assert steps(select_checkpoints(known, by_epoch, now=NOW)) == [4, 9], "the third epoch may not have ended"
    next_epoch = [*known, landed(16, 15, epoch=3, first_step=0)]
    assert steps(select_checkpoints(next_epoch, by_epoch, now=NOW)) == [4, 9, 14]


def test_an_epoch_is_finished_where_the_state_counts_finished_ones() -> None:
    known = [landed(n, 50 * n, epoch=n // 2) for n in range(1, 7)]
    by_epoch = config(select="frequency", order="oldest", evaluator={"freq_epochs": 2})
    assert steps(select_checkpoints(known, by_epoch, now=NOW)) == [200]


def test_seconds_count_from_the_last_that_was_due() -> None:
    known = [landed(n, n, minute=minute) for n, minute in enumerate((1, 3, 6.5, 7, 12, 13), start=1)]
    by_time = config(select="frequency", order="oldest", evaluator={"freq_secs": 300})
    assert steps(select_checkpoints(known, by_time, now=NOW)) == [3, 5]


def test_the_final_one_is_wanted_once_nothing_follows() -> None:
    known = [landed(n, n) for n in range(1, 6)]
    final = config(every=100, final_after_s=3600)
    assert select_checkpoints(known, final, now=known[-1].landed_at + timedelta(minutes=59)) == []
    assert steps(select_checkpoints(known, final, now=known[-1].landed_at + timedelta(minutes=60))) == [5]


def test_a_folder_saved_again_is_due_as_it_was_before() -> None:
    known = [landed(number, step, path=f"/ck/{step}") for number, step in enumerate((100, 200, 300, 400), start=1)]
    again = [landed(number, step, path=f"/ck/{step}") for number, step in enumerate((200, 300), start=5)]
    by_step = config(select="frequency", order="oldest", evaluator={"freq_steps": 200})
    assert [one.number for one in select_checkpoints(known + again, by_step, now=NOW)] == [2, 5, 4]


def test_each_folder_of_checkpoints_counts_for_itself() -> None:
    found = (("a", 100), ("b", 100), ("a", 250), ("b", 200), ("b", 400), ("a", 400))
    known = [landed(number, step, path=f"/{run}/{step}") for number, (run, step) in enumerate(found, start=1)]
    for every, wanted in ((1, ["/b/200", "/a/250", "/b/400", "/a/400"]), (2, ["/b/400", "/a/400"])):
        by_step = config(select="frequency", every=every, order="oldest", evaluator={"freq_steps": 200})
        assert [str(one.path) for one in select_checkpoints(known, by_step, now=NOW)] == wanted


def test_the_last_model_in_the_folder_above_counts_with_the_checkpoints() -> None:
    known = [landed(1, 200, path="/ck/checkpoint-200"), landed(2, 300, path="/ck")]
    by_step = config(select="frequency", evaluator={"freq_steps": 200})
    assert steps(select_checkpoints(known, by_step, now=NOW)) == [200]


def test_what_vanished_is_not_wanted() -> None:
    known = [landed(1, 1), landed(2, 2).model_copy(update={"is_vanished": True})]
    assert steps(select_checkpoints(known, config(), now=NOW)) == [1]


positions = st.lists(
    st.tuples(st.none() | st.integers(0, 300), st.none() | st.integers(0, 8), st.floats(0, 500)), max_size=25
)
settings = st.fixed_dictionaries(
    {
        "select": st.sampled_from(["all", "frequency"]),
        "every": st.integers(1, 4),
        "order": st.sampled_from(["newest", "oldest"]),
    }
)
evaluators = st.fixed_dictionaries(
    {
        "freq_steps": st.none() | st.integers(1, 40),
        "freq_secs": st.none() | st.integers(1, 9999),
        "freq_epochs": st.none() | st.integers(1, 3),
    }
)


@given(positions, settings, evaluators, st.randoms())
def test_order_of_knowledge_does_not_matter_and_nothing_is_wanted_twice(
    found: list[tuple[int | None, int | None, float]],
    watch: dict[str, object],
    evaluator: dict[str, object],
    random: object,
) -> None:
    known = [landed(n, step, epoch=epoch, minute=minute + 1) for n, (step, epoch, minute) in enumerate(found, start=1)]
    wanted = config(evaluator=evaluator, **watch)
    chosen = select_checkpoints(known, wanted, now=NOW)
    assert len({one.mark for one in chosen}) == len(chosen)
    assert {one.mark for one in chosen} <= {one.mark for one in known}
    shuffled = known[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert select_checkpoints(shuffled, wanted, now=NOW) == chosen
    if watch["select"] == "all" and watch["every"] == 1:
        assert len(chosen) == len(known)


saves = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from("aab"), st.none() | st.integers(0, 5)), min_size=1, max_size=20
)
"""Steps since the save before, trial, and how many saves later it vanishes, if it does."""


@given(
    saves,
    st.sampled_from(["all", "frequency"]),
    st.integers(1, 4),
    st.tuples(st.integers(1, 30), st.none() | st.integers(1, 2), st.none() | st.just(120)),
    st.integers(0, 1),
)
def test_what_was_wanted_stays_wanted_whatever_lands_or_vanishes(
    saves: list[tuple[int, str, int | None]],
    select: str,
    every: int,
    frequencies: tuple[int, int | None, int | None],
    first_step: int,
) -> None:
    position, known = first_step, []
    for number, (gap, trial, _) in enumerate(saves, start=1):
        position += gap
        path = f"/{trial}/{number}"
        known.append(landed(number, position, epoch=position // 7, first_step=first_step, path=path))
    evaluator: dict[str, object] = dict(zip(("freq_steps", "freq_epochs", "freq_secs"), frequencies, strict=True))
    wanted = config(select=select, every=every, evaluator=evaluator)
    before: set[str] = set()
    for length in range(len(known) + 1):
        vanished = {
            one.mark
            for one, (_, _, after) in zip(known, saves, strict=True)
            if after is not None and one.number + after < length
        }
        seen = [one.model_copy(update={"is_vanished": one.mark in vanished}) for one in known[:length]]
        now_wanted = {one.mark for one in select_checkpoints(seen, wanted, now=NOW)}
        assert before - vanished <= now_wanted
        assert not now_wanted & vanished
        before = now_wanted
