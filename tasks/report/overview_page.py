"""The report over checkpoints: one self-contained HTML file with curves, changes and samples.

Everything that comes from a dataset, a checkpoint or a model is escaped by the template, or reaches the page as text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from infra.files.atomic import write_bytes_atomically, write_text_atomically
from infra.store import Store
from infra.text.tables import UNDEFINED, TextTable, format_number
from schemas.stand_in import DUMMY_ENGINE
from tasks.report.changes import Change, find_changes
from tasks.report.charts import Spec, draw_changes, draw_curves, draw_lengths, draw_pass_at_k
from tasks.report.metrics_table import headline_metrics
from tasks.report.pictures import render_png, render_svg, to_themed_svg
from tasks.report.sample_choice import bin_lengths, choose_samples
from tasks.report.sample_search import describe_choices
from tasks.report.series import Overview, Point, Series

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE: Final = "overview.html.jinja"
_FIRST_METRIC: Final = "accuracy"
_ABOUT_SERVED: Final = "All samples; without a checkpoint chosen, those of the latest ones."
_MAX_NAME: Final = 40
"""Letters of a checkpoint's name in the table; its end tells it from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of the page."""

    name: str
    """Name of its file, should it be written."""
    title: str
    """Heading."""
    note: str
    """What is drawn, and how to read it."""
    spec: Spec
    """Vega-Lite specification."""

    @property
    def themed_svg(self) -> str:
        """Picture for the page."""
        return to_themed_svg(render_svg(self.spec))


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewReport:
    """What the page shows, worked out."""

    overview: Overview
    """Lines, points and events."""
    changes: tuple[Change, ...]
    """Latest runs against earlier ones."""
    charts: tuple[Chart, ...]
    """Charts, the curve of accuracy first."""
    samples: list[dict[str, Any]]
    """Samples to read, where no server has them."""
    server_version: str = ""
    """State of the store that a server shows; empty for a page that stands alone."""


def make_report(store: Store, overview: Overview, *, server_version: str = "") -> OverviewReport:
    """Return the report of an overview; reads the scores that are compared and the samples that are shown.

    Args:
        store: Where its runs are published.
        overview: What is reported.
        server_version: State of the store, where a server has the samples; empty: the page holds a choice of them.

    Raises:
        StoreError: the store cannot be read.
    """
    changes = find_changes(store, overview)
    charts = [*_curves(overview), *_forest(changes), *_pass_at_k(overview), *_lengths(store, overview)]
    return OverviewReport(
        overview=overview,
        changes=changes,
        charts=tuple(charts),
        samples=[] if server_version else choose_samples(store, overview),
        server_version=server_version,
    )


def write_report(path: Path, report: OverviewReport, *, title: str) -> None:
    """Write the page, whole or not at all.

    Raises:
        StoreError: the disk refused.
    """
    write_text_atomically(path, render_report(report, title=title))


def write_charts(folder: Path, report: OverviewReport) -> list[Path]:
    """Write each chart as NAME.svg and NAME.png and return the files.

    Raises:
        StoreError: the disk refused.
    """
    written: list[Path] = []
    for chart in report.charts:
        for suffix, content in ((".svg", render_svg(chart.spec).encode()), (".png", render_png(chart.spec))):
            path = folder / f"{chart.name}{suffix}"
            write_bytes_atomically(path, content)
            written.append(path)
    return written


def render_report(report: OverviewReport, *, title: str) -> str:
    """Return the HTML of the page."""
    overview = report.overview
    return _template().render(
        title=title,
        written=datetime.now(UTC),
        answer=_answer(report.changes),
        latest=tabulate_latest(overview, report.changes),
        charts=[(chart.title, chart.note, chart.themed_svg) for chart in report.charts],
        events=overview.events,
        has_steps=overview.has_steps,
        samples=report.samples,
        settings=_settings(report),
        about_samples=_ABOUT_SERVED if report.server_version else _about_chosen(len(report.samples)),
        runs=_tabulate_runs(overview),
        num_runs=len(overview.runs),
        num_datasets=len(overview.datasets),
        has_dummy=any(run.is_dummy for run in overview.runs),
        dummy=DUMMY_ENGINE,
    )


def _settings(report: OverviewReport) -> dict[str, Any]:
    """Return what the page's script needs to know."""
    is_served = bool(report.server_version)
    choices = describe_choices(report.overview, latest_only=not is_served)
    return choices | {"server": is_served, "version": report.server_version}


def _about_chosen(num_samples: int) -> str:
    return (
        f"{num_samples:,} samples of the latest checkpoints, chosen evenly over verdicts and over those that changed "
        "since the checkpoint before; the store has all."
    )


def tabulate_latest(overview: Overview, changes: Sequence[Change]) -> TextTable:
    """Return one row per line: its latest accuracy with the interval, and how it changed."""
    against = ("previous", "best", "first")
    found = {(change.series.dataset, change.series.name, change.against): change for change in changes}
    header = ["dataset", "training", "checkpoint", "accuracy", "95% interval", "scored"]
    rows: list[list[str]] = []
    for series in overview.series:
        run, metric = series.latest, _accuracy(overview, series)
        interval = (
            UNDEFINED
            if metric is None
            else f"{format_number(metric.metric.ci_low)} to {format_number(metric.metric.ci_high)}"
        )
        own = [found.get((series.dataset, series.name, name)) for name in against]
        rows.append(
            [
                series.dataset,
                series.name,
                _place(series),
                format_number(None if metric is None else metric.metric.value),
                interval,
                f"{run.num_scored:,}/{run.num_planned:,}",
                *(_describe_change(change) for change in own),
            ]
        )
    return TextTable([*header, *(f"against {name}" for name in against)], rows)


def _accuracy(overview: Overview, series: Series) -> Point | None:
    wanted = (series.latest.run_id, _FIRST_METRIC)
    return next((point for point in overview.points if (point.run.run_id, point.metric.metric) == wanted), None)


def _place(series: Series) -> str:
    run = series.latest
    if run.global_step is not None:
        return f"step {run.global_step:,}"
    return run.checkpoint if len(run.checkpoint) <= _MAX_NAME else f"…{run.checkpoint[1 - _MAX_NAME :]}"


def _describe_change(change: Change | None) -> str:
    if change is None:
        return UNDEFINED
    found = change.comparison
    if found is None or found.difference is None:
        return f"cannot tell: {change.reason}" if change.reason else "cannot tell"
    interval = f"[{format_number(found.ci_low, '+.3f')}, {format_number(found.ci_high, '+.3f')}]"
    return f"{found.difference:+.3f} {interval}, {change.verdict}"


def _answer(changes: Sequence[Change]) -> str:
    """Return the first line of the page: is this training getting better?"""
    sentences: list[str] = []
    for against, words in (
        ("first", "the first checkpoint"),
        ("best", "the best one so far"),
        ("previous", "the one before"),
    ):
        verdicts = [change.verdict for change in changes if change.against == against]
        if verdicts:
            counted = [(verdict, verdicts.count(verdict)) for verdict in dict.fromkeys(verdicts)]
            sentences.append(f"against {words}: " + ", ".join(f"{count} {verdict}" for verdict, count in counted))
    return "; ".join(sentences)


def _curves(overview: Overview) -> list[Chart]:
    names = list(dict.fromkeys(row.metric for row in headline_metrics([point.metric for point in overview.points])))
    ordered = sorted(names, key=lambda name: (name != _FIRST_METRIC, names.index(name)))
    note = "Each point is one run over the whole dataset; the band is its 95% interval."
    events = " Dashed red lines mark alerts, listed below." if overview.events else ""
    return [
        Chart(
            name=f"curve-{name.replace('@', '-at-')}",
            title=name,
            note=note + (events if name == _FIRST_METRIC else ""),
            spec=draw_curves(overview, name),
        )
        for name in ordered
        if any(point.metric.metric == name and point.metric.value is not None for point in overview.points)
    ]


def _forest(changes: Sequence[Change]) -> list[Chart]:
    if not any(change.comparison is not None for change in changes):
        return []
    note = (
        "Difference of the mean score between the latest checkpoint and an earlier one, paired by problem, with its "
        "95% interval. “Better” and “worse” hold at 5% over all differences shown (Holm). The best checkpoint so far "
        "was chosen for its score, which overstates it."
    )
    return [Chart(name="changes", title="Changes", note=note, spec=draw_changes(changes))]


def _pass_at_k(overview: Overview) -> list[Chart]:
    latest = {series.latest.run_id for series in overview.series}
    points = [
        point
        for point in overview.points
        if point.run.run_id in latest and point.metric.metric.startswith("pass@") and point.metric.value is not None
    ]
    if len({point.metric.metric for point in points}) < 2:
        return []
    note = "Chance that at least one of k answers is right, for the latest checkpoint."
    return [Chart(name="pass-at-k", title="pass@k", note=note, spec=draw_pass_at_k(points))]


def _lengths(store: Store, overview: Overview) -> list[Chart]:
    bins = bin_lengths(store, overview)
    if not bins:
        return []
    note = (
        "Mean score by length of the answer; the number in a cell counts its samples. Short and right is on the left, "
        "in bright colours; a row that is dark at the right means that long answers fail."
    )
    return [Chart(name="lengths", title="Accuracy by length of the answer", note=note, spec=draw_lengths(bins))]


def _tabulate_runs(overview: Overview) -> TextTable:
    header = ["dataset", "training", "checkpoint", "step", "accuracy", "scored", "failed", "engine", "finished", "run"]
    rows = [
        [
            series.dataset,
            series.name,
            run.checkpoint,
            UNDEFINED if run.global_step is None else str(run.global_step),
            format_number(run.accuracy),
            f"{run.num_scored:,}/{run.num_planned:,}",
            f"{run.num_failed:,}",
            run.engine,
            f"{run.finished_at:%Y-%m-%d %H:%M}",
            run.run_id,
        ]
        for series in overview.series
        for run in series.runs
    ]
    return TextTable(header, rows)


@cache
def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(_TEMPLATE)
