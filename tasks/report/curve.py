"""The curve of a training as a picture in Markdown: for the artifact on the Prefect run's page."""

import base64
import logging
from dataclasses import replace
from typing import Final

from infra.store import Store
from schemas.errors import ConfigError, StoreError
from schemas.summary import RunSummary
from tasks.report.charts import draw_curves
from tasks.report.pictures import render_svg_on_white
from tasks.report.series import Overview, read_overview

_METRIC: Final = "accuracy"

logger = logging.getLogger(__name__)


def draw_training_curve(store: Store, summary: RunSummary) -> str | None:
    """Return accuracy over the experiment's checkpoints on the run's dataset, as Markdown of one picture.

    None where no line has two points yet, or where the store cannot be read: what is published does not fail for that.
    """
    try:
        overview = _on_dataset(read_overview(store, [summary.experiment_name]), summary.dataset)
    except (StoreError, ConfigError) as exc:
        logger.warning("no curve of experiment %s is drawn: %s", summary.experiment_name, exc)
        return None
    places = {
        (point.series.name, point.position)
        for point in overview.points
        if point.metric.metric == _METRIC and point.metric.value is not None
    }
    if len(places) == len({name for name, _ in places}):
        return None
    svg = render_svg_on_white(draw_curves(overview, _METRIC))
    # the page of an artifact asks no other host for a picture, and no file of this machine
    return f"![{_METRIC} over training](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def _on_dataset(overview: Overview, dataset: str) -> Overview:
    return replace(
        overview,
        series=tuple(series for series in overview.series if series.dataset == dataset),
        points=tuple(point for point in overview.points if point.series.dataset == dataset),
        events=tuple(event for event in overview.events if event.dataset == dataset),
    )
