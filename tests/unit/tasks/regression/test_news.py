"""A drop is told of where it is news: a training that stays down does not alarm at every checkpoint."""

from pathlib import Path
from typing import Literal

import pytest

from infra.fileroot.run_directory import run_at
from schemas.config import EvaluationConfig
from schemas.regression import RegressionCheck, RegressionReport
from tasks.regression.stage import find_news


def make_report(**regressions: bool) -> RegressionReport:
    """The comparisons by what is compared with, and whether each is a regression."""
    names: tuple[Literal["previous", "best"], ...] = ("previous", "best")
    checks = tuple(
        RegressionCheck(
            against=name,
            run_id=f"run-of-{name}",
            checkpoint=name,
            global_step=1,
            value=0.5,
            against_value=0.6,
            difference=-0.1,
            ci_low=None,
            ci_high=None,
            num_items=100,
            p_value=1e-6,
            level=1e-3,
            is_regression=regressions[name],
        )
        for name in names
        if name in regressions
    )
    return RegressionReport(metric="mean score", minimum_effect=0.02, num_looks=2, checks=checks)


@pytest.fixture
def config(tmp_path: Path) -> EvaluationConfig:
    document = {
        "cluster": {"fileroot": str(tmp_path)},
        "actor": {"path": "checkpoint"},
        "valid_dataset": {"path": "sums.jsonl"},
    }
    return EvaluationConfig.model_validate(document)


def news(config: EvaluationConfig, report: RegressionReport) -> str | None:
    found = find_news(config, report)
    return None if found is None else found.against


def test_a_drop_from_the_previous_checkpoint_is_news(config: EvaluationConfig) -> None:
    assert news(config, make_report(previous=True, best=True)) == "previous"
    assert news(config, make_report(previous=True)) == "previous"


def test_no_drop_is_none(config: EvaluationConfig) -> None:
    assert news(config, make_report(previous=False, best=False)) is None


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (make_report(previous=True), None),
        (make_report(previous=False, best=True), None),
        (make_report(previous=False), "best"),
        (None, "best"),
    ],
)
def test_a_drop_from_the_best_is_news_until_it_was_told_with_the_previous_checkpoint(
    config: EvaluationConfig, before: RegressionReport | None, told: str | None
) -> None:
    previous = run_at(config.cluster.folder, "run-of-previous")
    previous.path.mkdir(parents=True)
    if before is not None:
        previous.regression_path.write_text(before.model_dump_json())
    assert news(config, make_report(previous=False, best=True)) == told
