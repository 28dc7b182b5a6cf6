"""The metrics of a run as a table for people: one row per subset, one column per metric."""

from collections.abc import Iterable, Sequence

from infra.text.tables import UNDEFINED, TextTable
from schemas.summary import WHOLE_SET, MetricValue


def headline_metrics(metrics: Sequence[MetricValue]) -> list[MetricValue]:
    """Return the metrics worth a column: of pass@k the largest k, and none that repeats accuracy."""
    largest = max((_k_of(row.metric) for row in metrics if row.metric.startswith("pass@")), default=0)
    hidden = ("avg@", "pass@", "maj_tie_rate@")
    kept = f"pass@{largest}" if largest > 1 else ""
    return [row for row in metrics if row.metric == kept or not row.metric.startswith(hidden)]


def _k_of(metric: str) -> int:
    return int(metric.partition("@")[2])


def tabulate_metrics(metrics: Sequence[MetricValue]) -> TextTable:
    """Return `subset`, one column per metric as `value ± stderr`, then scored/planned and failed samples.

    The whole set comes first, then the subsets by name.
    """
    names = _in_order(row.metric for row in metrics)
    subsets = sorted(_in_order(row.subset for row in metrics), key=lambda subset: (subset != WHOLE_SET, subset))
    cells = {(row.subset, row.metric): row for row in metrics}
    rows: list[list[str]] = []
    for subset in subsets:
        present = [cells.get((subset, name)) for name in names]
        counted = next(row for row in present if row is not None)
        rows.append(
            [
                subset,
                *(UNDEFINED if row is None else format_estimate(row) for row in present),
                f"{counted.num_scored}/{counted.num_planned}",
                str(counted.num_failed),
            ]
        )
    return TextTable(header=["subset", *names, "scored", "failed"], rows=rows)


def format_estimate(row: MetricValue) -> str:
    """Return `value ± stderr`, with digits that suit the size of the value.

    Without a standard error, as where no sample of 24 is right, the 95% interval takes its place: `0.000 [0.00, 0.14]`.
    """
    if row.value is None:
        return UNDEFINED
    digits = 3 if abs(row.value) < 10 else 1
    value = f"{row.value:.{digits}f}"
    if row.stderr is not None:
        return f"{value} ± {row.stderr:.{digits}f}"
    if row.ci_low is None or row.ci_high is None:
        return f"{value} ± {UNDEFINED}"
    return f"{value} [{row.ci_low:.{digits - 1}f}, {row.ci_high:.{digits - 1}f}]"


def _in_order(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
