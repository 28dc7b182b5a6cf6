"""A table in four formats: what stands in a cell is data in each of them."""

import csv
import io
import json

from infra.text.tables import TextTable, format_table

TABLE = TextTable(["name", "value"], [["a|b_c", "0.5 ± 0.1"], ['x,"y"\n\\z & 50% {~^}', "–"]])


def test_csv_and_json_give_every_cell_back() -> None:
    assert list(csv.reader(io.StringIO(format_table(TABLE, "csv")))) == [TABLE.header, *TABLE.rows]
    assert json.loads(format_table(TABLE, "json")) == [dict(zip(TABLE.header, row, strict=True)) for row in TABLE.rows]


def test_markdown_and_latex_escape_what_would_be_markup() -> None:
    assert r"| a\|b\_c | 0.5 ± 0.1 |" in format_table(TABLE, "markdown")
    lines = format_table(TABLE, "latex").splitlines()
    assert lines[0] == r"\begin{tabular}{ll}"
    assert r"a|b\_c & 0.5 $\pm$ 0.1 \\" in lines
    assert (
        r"x,\"y\" \textbackslash{}z \& 50\% \{\textasciitilde{}\textasciicircum{}\} & -- \\".replace(r"\"", '"')
        in lines
    )
