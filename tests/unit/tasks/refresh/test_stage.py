"""A refresh from files to a version: what is drawn, what is left out, when it is due, and what is refused."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.datasets.conversation import problem_text
from infra.fileroot.validation_sets import versions_of
from schemas.config import EvaluationConfig
from schemas.errors import ConfigError, DatasetError, StoreError
from schemas.refresh import RefreshOutcome
from schemas.training_position import TrainingPosition
from tasks.refresh.stage import refresh_if_due, refresh_validation_set, roll_back
from tasks.validation_set.versions import find_current_version

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HERE = TrainingPosition(global_step=100)
Row = dict[str, Any]


def make_rows(prefix: str, count: int, *, topics: Sequence[str] = ("sum", "product")) -> list[Row]:
    """Problems of eight words of their own, so that no two are alike."""
    return [
        {
            "id": f"{prefix}{number}",
            "task": " ".join(f"{prefix}{number}word{place}" for place in range(8)) + "?",
            "gold": str(number),
            "topic": topics[number % len(topics)],
        }
        for number in range(count)
    ]


class Bench:
    """A source of 40 problems and a pool of 200 of two topics, one to three; each test changes one thing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("source", make_rows("s", 40))
        self.write("pool", make_rows("p", 200, topics=("sum", "product", "product", "product")))

    def write(self, name: str, rows: Sequence[Row]) -> str:
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    def config(self, *, valid_dataset: Row | None = None, seed: int = 1, **refresh: Any) -> EvaluationConfig:
        columns = {"prompt": "task", "gold": "gold", "id": "id", "subsets": ["topic"]}
        return EvaluationConfig.model_validate(
            {
                "actor": {"path": "model"},
                "seed": seed,
                "cluster": {"fileroot": str(self.folder / "out")},
                "valid_dataset": {"path": str(self.folder / "source.jsonl"), "columns": columns}
                | (valid_dataset or {}),
                "refresh": {"pool": [str(self.folder / "pool.jsonl")]} | refresh,
            }
        )

    def refresh(self, config: EvaluationConfig | None = None, **refresh: Any) -> RefreshOutcome:
        config = config or self.config(**refresh)
        return refresh_validation_set(config, reason="a test", position=HERE, now=NOW)

    def nothing_was_written(self) -> bool:
        return not (self.folder / "out").exists()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_source_becomes_the_first_version_and_the_draw_the_second(bench: Bench) -> None:
    outcome = bench.refresh()
    store = versions_of(bench.config())
    first, second = (store.read(name) for name in store.versions())
    assert (first.manifest.number, first.manifest.parent, first.manifest.draw) == (1, None, None)
    assert [item.item_id for item in first.items] == [f"s{number}" for number in range(40)]
    assert outcome.is_new
    assert outcome.manifest == second.manifest
    assert second.manifest.parent == first.manifest.version
    assert (second.manifest.origin.reason, second.manifest.origin.position) == ("a test", HERE)
    draw = second.manifest.draw
    assert draw is not None
    assert len(second.items) == 40
    assert len(draw.anchors) == 8
    assert set(draw.anchors) < {item.item_id for item in first.items}
    assert [row.model_dump() for row in draw.strata] == [
        {"stratum": {"topic": "product"}, "wanted": 26, "had": 150, "drawn": 26},
        {"stratum": {"topic": "sum"}, "wanted": 6, "had": 50, "drawn": 6},
    ]
    # the whole has the pool's mixture, anchors included
    assert Counter(item.subsets["topic"] for item in second.items) == {"product": 30, "sum": 10}


def test_a_draw_depends_on_seed_parent_and_pool_alone(bench: Bench, tmp_path: Path) -> None:
    outcome = bench.refresh()
    (tmp_path / "other").mkdir()
    other = Bench(tmp_path / "other")
    rows = make_rows("p", 200, topics=("sum", "product", "product", "product"))
    random.Random(3).shuffle(rows)
    halves = [other.write("one", rows[:70]), other.write("two", rows[70:])]
    assert other.refresh(pool=halves).manifest.content_digest == outcome.manifest.content_digest
    roll_back(bench.config(), "v1")
    again = bench.refresh()
    assert (again.manifest, again.is_new) == (outcome.manifest, True)
    roll_back(bench.config(), "v1")
    assert bench.refresh(seed=2).manifest.content_digest != outcome.manifest.content_digest


def test_anchors_stay_through_all_versions(bench: Bench) -> None:
    outcomes = [bench.refresh() for _ in range(3)]
    anchors = {outcome.manifest.draw.anchors for outcome in outcomes if outcome.manifest.draw}
    assert len(anchors) == 1
    assert [outcome.manifest.number for outcome in outcomes] == [2, 3, 4]
    drawn = [set(outcome.manifest.item_digests) for outcome in outcomes]
    assert drawn[0] != drawn[1]


def test_copies_and_near_copies_and_what_training_has_seen_are_left_out(bench: Bench) -> None:
    rows = make_rows("p", 60)
    rows.append(rows[0] | {"id": "copy", "task": rows[0]["task"].upper()})
    long = " ".join(f"long{place}" for place in range(60))
    rows += [{"id": f"near{end}", "task": f"{long} {end}", "gold": "1", "topic": "sum"} for end in ("one", "two")]
    training = bench.write("training", [{"chat": [{"role": "user", "text": f"{row['task']} "}]} for row in rows[4:10]])
    config = bench.config(pool=[bench.write("pool", rows)], training_data=[training], anchor_ratio=0, size=52)
    draw = bench.refresh(config).manifest.draw
    assert draw is not None
    assert (draw.num_exact_duplicates, draw.num_near_duplicates) == (1, 1)
    report = draw.contamination
    assert (report.num_exact, report.num_checked, report.num_training_rows) == (6, 102, 6)
    assert report.share_removed == pytest.approx(6 / 102)
    assert {match.item_id for match in report.matches} == {f"p{number}" for number in range(4, 10)}
    drawn = {problem_text(item) for item in versions_of(config).read(find_current_version(config) or "").items}
    assert not drawn & {row["task"] for row in rows[4:10]}


def test_an_item_of_the_parent_that_training_has_seen_is_no_anchor(bench: Bench) -> None:
    training = bench.write("training", make_rows("s", 35))
    draw = bench.refresh(training_data=[training], anchor_ratio=0.5).manifest.draw
    assert draw is not None
    assert draw.anchors == ("s35", "s36", "s37", "s38", "s39")


def test_golds_that_cannot_be_graded_are_passed_over_and_named(bench: Bench) -> None:
    rows = make_rows("p", 200)
    for row in rows[:120]:
        row["gold"] = "none"
    draw = bench.refresh(pool=[bench.write("pool", rows)]).manifest.draw
    assert draw is not None
    assert draw.refused_golds
    assert draw.refused_golds[0].reason == "'none' is no answer"
    assert {refused.item_id for refused in draw.refused_golds} <= {f"p{number}" for number in range(120)}


def test_a_pool_too_small_says_which_strata_lack_how_many(bench: Bench) -> None:
    with pytest.raises(DatasetError) as told:
        bench.refresh(size=260, anchor_ratio=0)
    assert "topic=product: wanted 195, has 150, 45 too few" in str(told.value)
    assert "topic=sum: wanted 65, has 50, 15 too few" in str(told.value)
    assert bench.nothing_was_written()


def test_a_pool_of_known_problems_is_too_small(bench: Bench) -> None:
    with pytest.raises(DatasetError, match="holds no problem that is not an anchor"):
        bench.refresh(pool=[str(bench.folder / "source.jsonl")], anchor_ratio=0.99, size=41)
    assert bench.nothing_was_written()


def test_one_id_for_two_problems_is_refused(bench: Bench) -> None:
    rows = make_rows("q", 10)
    rows[3]["id"] = "p7"
    with pytest.raises(DatasetError, match="the id 'p7' names two different problems"):
        bench.refresh(pool=[str(bench.folder / "pool.jsonl"), bench.write("more", rows)])


@pytest.mark.parametrize(
    ("refresh", "message"),
    [
        ({"pool": []}, "refresh.pool is empty"),
        ({"pool": ["nowhere.jsonl"]}, "refresh.pool: dataset 'nowhere.jsonl' does not exist"),
        ({"training_data": ["nowhere.jsonl"]}, "refresh.training_data: dataset 'nowhere.jsonl' does not exist"),
        ({"stratify_by": ["subject"]}, "refresh.stratify_by names 'subject'.*it has 'topic'"),
    ],
)
def test_wrong_settings_are_named_and_write_nothing(bench: Bench, refresh: Row, message: str) -> None:
    with pytest.raises((ConfigError, DatasetError), match=message):
        bench.refresh(**refresh)
    assert bench.nothing_was_written()


def test_empty_and_broken_training_data_is_refused(bench: Bench) -> None:
    with pytest.raises(DatasetError, match=r"training_data: .*is empty"):
        bench.refresh(training_data=[bench.write("empty", [])])
    broken = bench.folder / "broken.jsonl"
    broken.write_text('{"text": "a"}\n{"text"\n')
    with pytest.raises(DatasetError, match=r"training_data: .*row 2 cannot be read"):
        bench.refresh(training_data=[str(broken)])


def test_versions_keep_one_way_of_asking(bench: Bench) -> None:
    bench.refresh()
    config = bench.config(valid_dataset={"system_prompt": "Be brief."})
    with pytest.raises(ConfigError, match=r"system_prompt is 'Be brief\.'.*ask with None"):
        bench.refresh(config)


def test_an_unknown_version_cannot_be_gone_back_to(bench: Bench) -> None:
    bench.refresh()
    with pytest.raises(StoreError, match=r"version 'v3' is not in .*it has v1-\w+, v2-\w+"):
        roll_back(bench.config(), "v3")


def test_the_summary_shows_what_happened_and_nothing_of_it_is_markup(bench: Bench) -> None:
    rows = make_rows("p", 200, topics=("a|b`<script>",))
    training = bench.write("training", [rows[0]])
    summary = bench.refresh(pool=[bench.write("pool", rows)], training_data=[training]).summary
    assert "40 items, `a test`, 2026-01-02 00:00 UTC." in summary
    assert "8 anchors kept from v1-" in summary
    assert "| `topic=a¦bʼ<script>` | 32 | 199 | 32 |" in summary
    assert "1 as they are, 0 by their n-grams" in summary
    assert "Not checked against training data" in bench.refresh().summary


def test_drift_makes_a_refresh_due_unless_told_otherwise(bench: Bench) -> None:
    def due(**refresh: Any) -> RefreshOutcome | None:
        return refresh_if_due(bench.config(**refresh), drifted=["prompt_length", "text"], position=HERE, now=NOW)

    assert due(pool=[]) is None
    assert due(on="command") is None
    assert bench.nothing_was_written()
    outcome = due()
    assert outcome is not None
    assert outcome.manifest.origin.reason == "drift of prompt_length, text"
    assert refresh_if_due(bench.config(), drifted=[], position=HERE, now=NOW) is None


def test_a_schedule_counts_from_the_last_version(bench: Bench) -> None:
    config = bench.config(on="schedule", freq_steps=50, freq_hours=24)

    def reason(step: int | None, hours: float) -> str | None:
        outcome = refresh_if_due(
            config,
            drifted=["text"],
            position=TrainingPosition(global_step=step),
            now=NOW + timedelta(hours=hours),
        )
        return outcome.manifest.origin.reason if outcome else None

    assert reason(100, 0) is None  # now there is a first version to count from
    assert len(versions_of(config).versions()) == 1
    assert reason(149, 23) is None
    assert reason(150, 1) == "schedule: step 150, 50 steps after the last version"
    assert reason(199, 24) is None
    assert reason(None, 25) == "schedule: 24.0 hours after the last version"
    assert reason(900, 26) is None  # the last version does not know its step


@pytest.mark.parametrize(
    ("refresh", "message"),
    [
        ({"on": "schedule"}, "no frequency is set"),
        ({"freq_steps": 5}, "a frequency is set but on is 'drift'"),
        ({"anchor_ratio": 1.0}, "less than 1"),
        ({"size": 0}, "greater than or equal to 1"),
        ({"on": "sometimes"}, "'drift', 'schedule', 'drift_or_schedule' or 'command'"),
    ],
)
def test_wrong_values_of_the_section_are_refused(bench: Bench, refresh: Row, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bench.config(**refresh)


def test_one_path_is_a_list_of_one(bench: Bench) -> None:
    assert bench.config(pool="a.jsonl").refresh.pool == ("a.jsonl",)
