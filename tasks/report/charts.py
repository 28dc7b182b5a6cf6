"""The charts of the report over checkpoints, as Vega-Lite specifications: one specification gives SVG and PNG.

All text in them is data: Vega draws it as text and nothing else. Colours are of Okabe and Ito's palette, which people
with colour-blindness tell apart; lines differ in dash and shape as well. Grammar: Vega-Lite 6.
"""

from collections.abc import Sequence
from typing import Any, Final

from tasks.report.changes import Change
from tasks.report.sample_choice import LengthBin
from tasks.report.series import Overview, Point

Spec = dict[str, Any]
"""A Vega-Lite specification, or a part of one."""

INK: Final = "#1c2024"
"""Colour of text; a page replaces it, and those below, by its theme's."""
QUIET: Final = "#60646c"
"""Colour of axis labels."""
GRID: Final = "#e8eaed"
"""Colour of grid lines."""
ALARM: Final = "#c62a2f"
"""Colour of events and of what got worse."""
GOOD: Final = "#18794e"
"""Colour of what got better."""
PALETTE: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#7a5195", "#6b6b6b")
"""Colours of lines; past the last they start again, with another dash."""
_DASHES: Final = ([1, 0], [6, 3], [2, 2])
_SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left")
_WIDTH: Final = 300
_HEIGHT: Final = 170
_ROW_HEIGHT: Final = 20
_COLUMNS: Final = 3
_BAND_OPACITY: Final = 0.18
_MAX_POINTS_MARKED: Final = 60
"""Points of a line that are marked one by one; more would hide the line."""
_MAX_MESSAGE: Final = 200
"""Letters of an event's message that a tooltip shows; the page lists it whole."""
_INDEPENDENT: Final[Spec] = {"scale": {"x": "independent", "y": "independent"}}


def draw_curves(overview: Overview, metric: str) -> Spec:
    """Return one small chart per dataset: the metric over training, a line with its 95% band per series, and events."""
    names = list(dict.fromkeys(series.name for series in overview.series))
    rows = [_point_row(point) for point in overview.points if point.metric.metric == metric]
    if metric == "accuracy":
        rows += [
            {
                "dataset": event.dataset,
                "position": event.position,
                "event": f"{event.kind}: {event.message[:_MAX_MESSAGE]}",
            }
            for event in overview.events
        ]
    title = "training step" if overview.has_steps else "checkpoint, in order of training"
    x: Spec = _value("position", title) | {"axis": {"tickMinStep": 1, "format": ",d"}}
    dashes = [_DASHES[number // len(PALETTE) % len(_DASHES)] for number in range(len(names))]
    line: Spec = _line_layers(x, names, title=metric) | {"transform": [{"filter": "isValid(datum.value)"}]}
    line["encoding"]["strokeDash"] = _by_name(names, dashes)
    if max(len(series.runs) for series in overview.series) <= _MAX_POINTS_MARKED:
        shapes = [_SHAPES[number % len(_SHAPES)] for number in range(len(names))]
        marks = {"y": _value("value", metric), "shape": _by_name(names, shapes), "description": _label("label")}
        alone: Spec = {"y": _value("low", metric), "y2": {"field": "high"}}  # a band of one point has no width
        line["layer"].append({"transform": [{"filter": "datum.is_alone"}], "mark": "rule", "encoding": alone})
        line["layer"].append({"mark": {"type": "point", "filled": True, "size": 36, "opacity": 1}, "encoding": marks})
    events: Spec = {
        "transform": [{"filter": "isValid(datum.event)"}],
        "mark": {"type": "rule", "color": ALARM, "strokeDash": [3, 3]},
        "encoding": {"x": x, "description": _label("event")},
    }
    return _small_charts(rows, [events, line], sort=overview.datasets) | {"resolve": _INDEPENDENT}


def draw_pass_at_k(points: Sequence[Point]) -> Spec:
    """Return pass@k over k, one small chart per dataset; `points`: those of one run per series."""
    rows = [_point_row(point) | {"k": int(point.metric.metric.partition("@")[2])} for point in points]
    names = list(dict.fromkeys(str(row["name"]) for row in rows))
    ticks = sorted({row["k"] for row in rows})
    x: Spec = {"field": "k", "type": "quantitative", "scale": {"type": "log", "base": 2}, "axis": {"values": ticks}}
    line = _line_layers(x, names, title="pass@k")
    line["layer"].append(
        {
            "mark": {"type": "point", "filled": True, "size": 36, "opacity": 1},
            "encoding": {"y": _value("value", "pass@k"), "description": _label("label")},
        }
    )
    return _small_charts(rows, [line])


def draw_changes(changes: Sequence[Change]) -> Spec:
    """Return the forest plot: each difference of the mean score with its 95% interval, beside a line at zero."""
    rows = [
        {
            "row": f"{change.series.dataset} · {change.series.name}",
            "facet": f"against the {change.against}",
            "value": found.difference,
            "low": found.ci_low,
            "high": found.ci_high,
            "verdict": change.verdict,
            "label": f"{change.series.dataset}, {change.series.name}: {found.difference:+.3f} "
            f"against {change.baseline.checkpoint}",
        }
        for change in changes
        if (found := change.comparison) is not None and found.difference is not None
    ]
    verdicts = {"better": GOOD, "worse": ALARM, "no clear change": QUIET, "cannot tell": QUIET}
    encoding: Spec = {
        "y": {"field": "row", "type": "nominal", "title": None, "sort": None, "axis": {"labelLimit": 320}},
        "color": {
            "field": "verdict",
            "type": "nominal",
            "scale": {"domain": list(verdicts), "range": list(verdicts.values())},
            "legend": {"title": None},
        },
    }
    title = "difference of the mean score"
    intervals: Spec = {
        "encoding": encoding,
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": _value("low", title), "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "encoding": {"x": _value("value", title), "description": _label("label")},
            },
        ],
    }
    zero: Spec = {
        "mark": {"type": "rule", "color": QUIET, "strokeDash": [2, 2]},
        "encoding": {"x": {"datum": 0, "type": "quantitative", "title": title}},
    }
    height = _ROW_HEIGHT * len({row["row"] for row in rows})
    return _small_charts(rows, [zero, intervals], field="facet", height=height, columns=2)


def draw_lengths(bins: Sequence[LengthBin]) -> Spec:
    """Return accuracy by length of the answer and checkpoint as a heatmap per line; each cell says how many."""
    rows = [
        {
            "facet": f"{each.dataset} · {each.series}",
            "checkpoint": each.checkpoint,
            "length": each.label,
            "order": each.order,
            "place": each.place,
            "accuracy": each.accuracy,
            "count": f"{each.num_samples:,}",
            "label": f"{each.checkpoint}, {each.label} tokens: accuracy {each.accuracy:.3f} of {each.num_samples:,}",
        }
        for each in bins
    ]
    colour: Spec = {
        "field": "accuracy",
        "type": "quantitative",
        "scale": {"scheme": "viridis", "domain": [0, 1]},
        "title": "accuracy",
    }
    cell: Spec = {
        "encoding": {
            "x": _ordered("length", "order", "tokens of the answer") | {"axis": {"labelAngle": -30}},
            "y": _ordered("checkpoint", "place", None),
        },
        "layer": [
            {"mark": "rect", "encoding": {"color": colour, "description": _label("label")}},
            {
                "mark": {"type": "text", "fontSize": 10},
                "encoding": {
                    "text": {"field": "count"},
                    "color": {"condition": {"test": "datum.accuracy > 0.6", "value": "#000000"}, "value": "#ffffff"},
                },
            },
        ],
    }
    height = _ROW_HEIGHT * max(
        len({each.place for each in bins if each.series == name}) for name in {b.series for b in bins}
    )
    return _small_charts(rows, [cell], field="facet", height=height) | {"resolve": _INDEPENDENT}


def _line_layers(x: Spec, names: Sequence[str], *, title: str) -> Spec:
    """Return a line and its band for each name."""
    legend = {"title": None, "orient": "top", "labelLimit": 400, "columns": 2, "symbolOpacity": 1}
    colours = [PALETTE[number % len(PALETTE)] for number in range(len(names))]
    colour = _by_name(names, colours) | {"legend": legend if len(names) > 1 else None}
    band: Spec = {
        "mark": {"type": "area", "opacity": _BAND_OPACITY},
        "encoding": {"y": _value("low", title), "y2": {"field": "high"}},
    }
    line: Spec = {"mark": "line", "encoding": {"y": _value("value", title)}}
    return {"encoding": {"x": x, "color": colour}, "layer": [band, line]}


def _small_charts(
    rows: Sequence[Spec],
    layers: Sequence[Spec],
    *,
    field: str = "dataset",
    sort: Sequence[str] | None = None,
    height: int = _HEIGHT,
    columns: int = _COLUMNS,
) -> Spec:
    """Return the layers drawn once for each value of `field`, side by side, as a whole specification."""
    axis = {"labelColor": QUIET, "titleColor": QUIET, "titleFontWeight": "normal"}
    lines = {"gridColor": GRID, "domainColor": GRID, "tickColor": GRID}
    return {
        "data": {"values": list(rows)},
        "facet": {"field": field, "type": "nominal", "title": None, "sort": list(sort) if sort else None},
        "columns": columns,
        "spec": {"layer": list(layers), "width": _WIDTH, "height": height},
        "config": {
            "font": "system-ui, sans-serif",
            "background": "transparent",
            "axis": axis | lines,
            "view": {"stroke": None},
            "legend": {"labelColor": INK, "titleColor": INK},
            "header": {"labelColor": INK, "labelFontSize": 13, "labelLimit": 320, "labelAnchor": "start"},
        },
    }


def _point_row(point: Point) -> Spec:
    metric, run = point.metric, point.run
    interval = "" if metric.ci_low is None else f" [{metric.ci_low:.3g}, {metric.ci_high:.3g}]"
    value = "undefined" if metric.value is None else f"{metric.value:.3g}{interval}"
    return {
        "name": point.series.name,
        "dataset": point.series.dataset,
        "position": point.position,
        "value": metric.value,
        "low": metric.ci_low,
        "high": metric.ci_high,
        "is_alone": len(point.series.runs) == 1,
        "label": f"{point.series.name}, {run.checkpoint}: {metric.metric} {value}",
    }


def _value(field: str, title: str) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, "scale": {"zero": False}}


def _label(field: str) -> Spec:
    """What a mark says of itself to a screen reader; the page shows it as a tooltip."""
    return {"field": field, "type": "nominal"}


def _ordered(field: str, by: str, title: str | None) -> Spec:
    return {"field": field, "type": "nominal", "title": title, "sort": {"field": by, "op": "min"}}


def _by_name(names: Sequence[str], values: Sequence[object]) -> Spec:
    return {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": list(names), "range": list(values)},
        "legend": None,
    }
