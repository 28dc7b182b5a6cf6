"""What the terminal shows of a finished run."""

from pathlib import Path

import pytest

from flows.commands import console
from schemas.summary import MetricValue, RunSummary


def test_the_table_of_metrics_is_cut_and_rows_left_out_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "OUT", console.Console(width=200))
    nothing = dict.fromkeys(("value", "stderr", "ci_low", "ci_high", "higher_is_better"))
    counts = {"num_planned": 3000, "num_scored": 3000, "num_failed": 0}
    subsets = ["all", *(f"id={number:04}" for number in range(3000))]
    metrics = [{"subset": subset, "metric": "accuracy", **nothing, **counts} for subset in subsets]
    texts = ("run_id", "experiment_name", "trial_name", "checkpoint", "weight_digest", "dataset", "dataset_version")
    summary = RunSummary.model_validate(
        {
            **dict.fromkeys(texts, "x"),
            **counts,
            "global_step": None,
            "run_dir": Path("run"),
            "store": Path("store"),
            "metrics": [MetricValue.model_validate(metric) for metric in metrics],
            "num_skipped_rows": 12,
            "num_attempts": 1,
            "num_resumed": 0,
            "wall_s": 1.0,
            "engine_s": None,
        }
    )
    console.print_summary(summary)
    shown = capsys.readouterr().out
    assert "all" in shown
    assert "id=0038" in shown
    assert "id=0039" not in shown
    assert "… and 2,961 more subsets, in the table metrics" in shown
    assert "left out 12 rows of the dataset (valid_dataset.invalid_rows=skip)" in shown
