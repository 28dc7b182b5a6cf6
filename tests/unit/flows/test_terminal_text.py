"""What a dataset, a checkpoint or a folder is called takes no effect on a terminal, and adds no line."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from flows.commands import console
from flows.commands.errors_and_options import errors_shown
from infra.text.plain_text import escape_json, to_terminal_line, to_terminal_log, to_terminal_text
from schemas.errors import DatasetError
from schemas.store import PublishedRun

HOSTILE = [
    "a\x1b[2Jb",
    "a\x1b]0;owned\x07b",
    "a\nerror: all is well",
    "a\r\nb",
    "a\rb",
    "a\x9b31mb",
    "a\u202eb\u2066c",
    "a\u200b\u2028b",
    "a\x00b\x08c\x7f",
    "a\ud800b",
    "[bold red]a[/] [link=file:///etc]b[/link]",
    "a ± b\ttab",
]
ROOT = Path(__file__).parents[3]


def is_harmless(text: str) -> bool:
    return all(letter.isprintable() for letter in text)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_others_reaches_a_terminal_as_it_is(text: str) -> None:
    assert is_harmless(to_terminal_line(text))
    lines = to_terminal_text(f"{text}: wrong\n  - more").split("\n")
    assert all(map(is_harmless, lines))
    assert all(line.startswith("  ") for line in lines[1:])
    assert is_harmless(to_terminal_log(text).replace("\n", ""))
    document = json.dumps({"a": text}, ensure_ascii=False)
    assert is_harmless(escape_json(document))
    assert json.loads(escape_json(document)) == {"a": text}


def test_plain_text_and_the_colours_of_a_log() -> None:
    assert to_terminal_line("Größe 表 – ±\u00a0x") == "Größe 表 – ± x"
    assert to_terminal_log("\x1b[32mINFO\x1b[0m 1\tok\n10%\r20%\nend\r\n") == "INFO 1  ok\n20%\nend\n"
    assert to_terminal_text("two problems\n  - a\nb") == "two problems\n  - a\n  b"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_table_of_runs_has_one_row_per_run(text: str, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    run = PublishedRun.model_construct(
        run_id="r1", experiment_name="e", checkpoint=text, global_step=1, dataset=text, accuracy=0.5, num_scored=1,
        num_planned=1, num_failed=0, finished_at=datetime(2026, 1, 1, tzinfo=UTC), engine="vllm",
    )  # fmt: skip
    monkeypatch.setattr(console, "OUT", console.Console(width=400))
    console.print_runs([run], [])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(map(is_harmless, lines))


@pytest.mark.parametrize("text", HOSTILE)
def test_an_error_is_one_message(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), errors_shown(as_json=False):
        raise DatasetError(f"{text}: no such subset")
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ")
    assert all(line.startswith("  ") for line in others)
    assert all(map(is_harmless, [first, *others]))


def test_no_command_hands_data_to_rich_as_it_is() -> None:
    """Rich obeys markup in a str, and hands on escapes in a Text."""
    raw = re.compile(r"(OUT|ERR|_console)\.print\(f|\bText\(f|Text\.assemble|map\(Text")
    modules = [path for path in (ROOT / "flows").rglob("*.py") if path.name != "steps.py"]  # its words are our own
    found = [(path.name, line) for path in modules for line in path.read_text().splitlines()]
    assert [place for place in found if raw.search(place[1])] == []


RUNS = [
    ("20260102-030405-01234567", "e", f"/checkpoints/a/very/long/path/of/a/training/run/global_step_{n}/hf", str(n),
     "gsm8k", "0.512", "100/100", "0", "2026-01-02 03:04")
    for n in (100, 200)
]  # fmt: skip


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160, 200])
def test_a_run_has_one_line_whatever_the_width(width: int) -> None:
    table = console.fit_columns(console._RUN_COLUMNS, RUNS, width=width)
    widths = [max(map(len, column)) for column in zip(table.header, *table.rows, strict=True)]
    assert sum(widths) + len(widths) - 1 <= max(width, 46)
    assert {"run", "checkpoint", "accuracy"} <= set(table.header)
    places = [row[table.header.index("checkpoint")] for row in table.rows]
    assert places[0] != places[1], "their ends tell checkpoints apart"
    assert ("experiment" in table.header) == (width >= 120)


def test_a_pipe_gets_every_column_whole() -> None:
    assert console.fit_columns(console._RUN_COLUMNS, RUNS, width=None).rows == [list(row) for row in RUNS]
