"""A check for degeneration in words: a table, and one sentence for an alert."""

from collections.abc import Iterable
from typing import Final

from infra.text.tables import UNDEFINED, TextTable, format_number
from schemas.degeneration import DegenerationReport, DegenerationSign, SignName

_WORDS: Final[dict[SignName, str]] = {
    "stopped_by_length": "cut at the longest length",
    "without_answer": "without an answer",
    "repeating": "repeating without end",
}


def tabulate(report: DegenerationReport | None) -> TextTable:
    """Return one row per sign."""
    header = ["completions", "share", "at least", "threshold", "verdict"]
    rows = [
        [
            _WORDS[sign.name],
            format_number(sign.share),
            format_number(sign.ci_low),
            format_number(sign.threshold),
            "degenerate" if sign.is_raised else UNDEFINED,
        ]
        for sign in (report.signs if report else ())
    ]
    return TextTable(header, rows)


def describe(signs: Iterable[DegenerationSign]) -> str:
    """Return which of the signs are raised, and how far."""
    return "; ".join(
        f"{format_number(sign.share)} of the completions are {_WORDS[sign.name]} "
        f"(threshold {format_number(sign.threshold)})"
        for sign in signs
        if sign.is_raised
    )
