"""Tables of text for people, and their form in Markdown."""

import csv
import io
import json
import re
from typing import Final, Literal, NamedTuple

UNDEFINED: Final = "–"
"""Shown where a number is undefined: never 0."""
_DIGEST: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")
"""A digest of 128 bits or more."""

_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
} | {letter: f"\\{letter}" for letter in "&%$#_{}"}


class TextTable(NamedTuple):
    """Cells ready to print; `rows` have as many cells as `header`."""

    header: list[str]
    rows: list[list[str]]


def format_number(value: float | None, spec: str = ".3f") -> str:
    """Return a number in the form of Python's format specification `spec`."""
    return UNDEFINED if value is None else format(value, spec)


def to_markdown(table: TextTable) -> str:
    """Return the table as GitHub Markdown; what is in the cells is data and is escaped."""
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    return "\n".join("| " + " | ".join(escape_markdown(cell) for cell in line) + " |" for line in lines) + "\n"


def format_table(table: TextTable, form: Literal["markdown", "csv", "latex", "json"]) -> str:
    """Return the table as Markdown, CSV, a LaTeX tabular or JSON (a list of objects); cells are escaped for it."""
    if form == "markdown":
        return to_markdown(table)
    if form == "json":
        return json.dumps([dict(zip(table.header, row, strict=True)) for row in table.rows], ensure_ascii=False) + "\n"
    if form == "latex":
        return _to_latex(table)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.header, *table.rows])
    return text.getvalue()


def _to_latex(table: TextTable) -> str:
    lines = [" & ".join(map(_escape_latex, row)) + r" \\" for row in (table.header, *table.rows)]
    head, *body = lines
    columns = "l" * len(table.header)
    return "\n".join(
        [f"\\begin{{tabular}}{{{columns}}}", r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}", ""]
    )


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    special = "\\`*_{}[]<>()#+!|"
    flat = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in special else letter for letter in flat)


def shorten_digests(text: str) -> str:
    """Return text with each digest cut to 12 characters, so that a column of them fits on a page."""
    return _DIGEST.sub(r"\1…", text)
