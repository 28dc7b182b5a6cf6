"""One feature, reference against current rows, as an SVG picture: paired bars, nothing to load, nothing to run."""

from html import escape
from typing import Final

from schemas.drift import FeatureDrift

_REFERENCE: Final = "#8a8f98"
_CURRENT: Final = "#d9541e"
_LABEL_WIDTH: Final = 240
_BAR_WIDTH: Final = 400
_WIDTH: Final = _LABEL_WIDTH + _BAR_WIDTH + 80
_ROW_HEIGHT: Final = 26
_HEAD_HEIGHT: Final = 56
_MAX_LABEL: Final = 36


def plot_feature(feature: FeatureDrift) -> str:
    """Return the SVG of a feature's bars: shares of rows, both sides on one scale. Labels are data and are escaped."""
    largest = max((max(bar.reference, bar.current) for bar in feature.bars), default=0.0) or 1.0
    height = _HEAD_HEIGHT + _ROW_HEIGHT * len(feature.bars) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(8, 20, feature.name, 'font-size="15"'),
        _text(8, 42, f"reference: {feature.num_reference:,} rows", f'font-size="12" fill="{_REFERENCE}"'),
        _text(_LABEL_WIDTH, 42, f"current: {feature.num_current:,} rows", f'font-size="12" fill="{_CURRENT}"'),
    ]
    for row, bar in enumerate(feature.bars):
        top = _HEAD_HEIGHT + row * _ROW_HEIGHT
        label = bar.label if len(bar.label) <= _MAX_LABEL else f"{bar.label[: _MAX_LABEL - 1]}…"
        lines.append(_text(_LABEL_WIDTH - 8, top + 15, label, 'font-size="12" text-anchor="end"'))
        for share, colour, offset in ((bar.reference, _REFERENCE, 2), (bar.current, _CURRENT, 12)):
            length = _BAR_WIDTH * share / largest
            bounds = f'x="{_LABEL_WIDTH}" y="{top + offset}" width="{length:.1f}" height="9"'
            lines.append(f'<rect {bounds} fill="{colour}"/>')
            lines.append(_text(_LABEL_WIDTH + length + 4, top + offset + 8, f"{share:.1%}", 'font-size="9"'))
    return "\n".join([*lines, "</svg>\n"])


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
