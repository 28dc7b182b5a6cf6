"""Which runs are on one line, in which order, and which a report leaves out."""

from pathlib import Path

import pytest

from schemas.errors import ConfigError
from tasks.report.series import read_overview
from tests.support.training_stores import publish_run


def test_a_line_holds_the_runs_of_one_training_in_order_of_steps(tmp_path: Path) -> None:
    for step in (300, 100, 200):
        publish_run(tmp_path, f"run-{step}", right=step // 10, step=step, events=("drift.detected",) * (step == 200))
    store = publish_run(tmp_path, "run-other", right=6, step=100, dataset="math")
    overview = read_overview(store, ["exp"])
    assert [(line.dataset, line.name) for line in overview.series] == [("gsm8k", "a"), ("math", "a")]
    assert [run.global_step for run in overview.series[0].runs] == [100, 200, 300]
    assert overview.has_steps
    accuracies = {point.position: point.metric.value for point in overview.points if point.series.dataset == "gsm8k"}
    assert accuracies == {100: 10 / 60, 200: 20 / 60, 300: 30 / 60}
    assert [(event.kind, event.position) for event in overview.events] == [("drift.detected", 200)]


def test_a_measurement_repeated_or_graded_again_is_one_point(tmp_path: Path) -> None:
    publish_run(tmp_path, "first", right=10, step=1, plan_key="p")
    store = publish_run(tmp_path, "again", right=12, step=1, plan_key="p", regrade_of="first")
    assert len(read_overview(store, []).runs) == 1


def test_other_settings_are_another_line_that_names_them(tmp_path: Path) -> None:
    publish_run(tmp_path, "warm", right=10, step=1)
    store = publish_run(tmp_path, "cold", right=12, step=1, temperature=0.6)
    assert [line.name for line in read_overview(store, []).series] == ["a", "a, gconfig.temperature=0.6"]


def test_the_dummy_engine_is_a_line_of_its_own_and_says_so(tmp_path: Path) -> None:
    publish_run(tmp_path, "real", right=10, step=1)
    store = publish_run(tmp_path, "made-up", right=12, step=2, engine="stand_in")
    assert [line.name for line in read_overview(store, []).series] == ["a", "a, dummy engine"]


def test_without_steps_runs_stand_in_order_of_publication(tmp_path: Path) -> None:
    publish_run(tmp_path, "one", right=10, step=None, weight_digest="w1")
    store = publish_run(tmp_path, "two", right=12, step=5)
    overview = read_overview(store, [])
    assert not overview.has_steps
    assert sorted(point.position for point in overview.points) == [1, 2]


def test_experiments_are_told_apart_where_there_are_several(tmp_path: Path) -> None:
    publish_run(tmp_path, "one", right=10)
    store = publish_run(tmp_path, "two", right=12, experiment_name="other")
    assert [line.name for line in read_overview(store, []).series] == ["exp/a", "other/a"]
    assert [line.name for line in read_overview(store, ["other"]).series] == ["a"]


@pytest.mark.parametrize(
    ("names", "words"),
    [(["exq"], "nearest: exp"), (["20260101"], "neither a published run nor an experiment")],
)
def test_a_name_that_means_nothing_is_rejected(tmp_path: Path, names: list[str], words: str) -> None:
    store = publish_run(tmp_path, "one", right=10)
    with pytest.raises(ConfigError, match=words):
        read_overview(store, names)


def test_a_report_over_nothing_is_rejected(tmp_path: Path) -> None:
    from infra.store import open_store

    with pytest.raises(ConfigError, match="no run is published"):
        read_overview(open_store(tmp_path), [])
