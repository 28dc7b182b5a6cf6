"""What people read at the end of a run."""

from infra.text.tables import to_markdown
from schemas.summary import MetricValue
from tasks.report.metrics_table import format_estimate, headline_metrics, tabulate_metrics


def row(subset: str, metric: str, value: float | None, stderr: float | None = 0.05) -> MetricValue:
    return MetricValue(
        subset=subset,
        metric=metric,
        value=value,
        stderr=stderr,
        ci_low=None,
        ci_high=None,
        num_planned=10,
        num_scored=9,
        num_failed=1,
        higher_is_better=True,
    )


def test_the_whole_set_leads_and_undefined_is_a_dash() -> None:
    table = tabulate_metrics(
        [
            row("task=b", "accuracy", 0.5),
            row("task=a", "accuracy", None, None),
            row("all", "accuracy", 0.25, None),
            row("all", "response_length", 123.456, 2.5),
        ]
    )
    assert table.header == ["subset", "accuracy", "response_length", "scored", "failed"]
    assert table.rows == [
        ["all", "0.250 ± –", "123.5 ± 2.5", "9/10", "1"],
        ["task=a", "–", "–", "9/10", "1"],
        ["task=b", "0.500 ± 0.050", "–", "9/10", "1"],
    ]


def test_an_interval_stands_where_no_standard_error_is() -> None:
    none_right = row("all", "accuracy", 0.0, None).model_copy(update={"ci_low": 0.0, "ci_high": 0.1434})
    assert format_estimate(none_right) == "0.000 [0.00, 0.14]"


def test_a_hostile_subset_cannot_break_the_markdown_table() -> None:
    table = tabulate_metrics([row("subject=a|b\n| <script>", "accuracy", 0.5)])
    lines = to_markdown(table).splitlines()
    assert len(lines) == 3
    assert r"subject=a\|b \| \<script\>" in lines[2]


def test_the_headline_repeats_nothing() -> None:
    names = ("accuracy", "avg@4", "pass@1", "pass@2", "pass@4", "maj@4", "maj_tie_rate@4", "response_length")
    shown = [metric.metric for metric in headline_metrics([row("all", name, 0.5) for name in names])]
    assert shown == ["accuracy", "pass@4", "maj@4", "response_length"]


def test_a_single_sample_per_item_has_no_pass_at_k_column() -> None:
    shown = headline_metrics([row("all", "accuracy", 0.5), row("all", "pass@1", 0.5)])
    assert [metric.metric for metric in shown] == ["accuracy"]
