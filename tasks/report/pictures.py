"""From a chart's specification to a picture: SVG for pages and papers, PNG for messages. Needs no network."""

import re
from collections.abc import Mapping
from typing import Final

from tasks.report.charts import ALARM, GOOD, GRID, INK, PALETTE, QUIET, Spec

_THEME: Final = {INK: "ink", QUIET: "quiet", GRID: "grid", ALARM: "alarm", GOOD: "good"} | {
    colour: f"line-{number}" for number, colour in enumerate(PALETTE)
}
"""Colours that a page's theme sets, by the name of its CSS variable."""
_COLOUR: Final = re.compile("|".join(f'(?<="){colour}(?=")' for colour in _THEME))
_PNG_SCALE: Final = 2.0
"""Pixels per unit: sharp on screens of twice the density."""


def render_svg(spec: Spec) -> str:
    """Return the chart as SVG, its colours as numbers."""
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return svg


def render_svg_on_white(spec: Spec) -> str:
    """Return the chart as SVG on white, for a page whose theme may be dark."""
    return render_svg(_on_white(spec))


def render_png(spec: Spec) -> bytes:
    """Return the chart as PNG on white, for what shows no SVG."""
    import vl_convert

    png: bytes = vl_convert.vegalite_to_png(_on_white(spec), scale=_PNG_SCALE, allowed_base_urls=[])
    return png


def to_themed_svg(svg: str) -> str:
    """Return a picture for a page: its colours are the page's CSS variables, so that it follows the page's theme."""
    return _COLOUR.sub(lambda found: f"var(--{_THEME[found[0]]})", svg)


def _on_white(spec: Spec) -> Spec:
    return spec | {"config": {**_config(spec), "background": "white"}}


def _config(spec: Spec) -> Mapping[str, object]:
    config = spec.get("config")
    return config if isinstance(config, dict) else {}
