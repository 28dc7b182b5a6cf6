"""The report over checkpoints: what it says, that it asks no other host, and that data stay data."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

from infra.store import Store
from tasks.report.changes import find_changes
from tasks.report.overview_page import make_report, tabulate_latest, write_charts, write_report
from tasks.report.series import read_overview
from tests.support.training_stores import publish_run

HOSTILE = "</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"


def training(root: Path) -> Store:
    for step, right in ((100, 20), (200, 45), (300, 44)):
        more = {"pass@1": right / 60, "pass@2": 0.9, "response_length": 40.0 + step}
        publish_run(
            root, f"run-{step}", right=right, step=step, metrics=more, events=("drift.detected",) * (step == 300)
        )
    return publish_run(
        root, "hostile", right=3, step=100, dataset="x", checkpoint=HOSTILE, texts={"completion": HOSTILE}
    )


def test_changes_are_paired_and_hold_over_all_that_are_shown(tmp_path: Path) -> None:
    store = training(tmp_path)
    changes = {change.against: change for change in find_changes(store, read_overview(store, []))}
    assert set(changes) == {"first", "previous"}  # the best one is the previous one, which is shown once
    first, previous = changes["first"], changes["previous"]
    assert (first.verdict, previous.verdict) == ("better", "no clear change")
    assert first.comparison is not None
    assert first.comparison.difference == 24 / 60
    assert (first.baseline.run_id, previous.baseline.run_id) == ("run-100", "run-200")


def test_the_table_has_a_row_per_line(tmp_path: Path) -> None:
    store = training(tmp_path)
    overview = read_overview(store, [])
    table = tabulate_latest(overview, find_changes(store, overview))
    gsm8k, other = table.rows
    assert gsm8k[:4] == ["gsm8k", "a", "step 300", "0.733"]
    assert gsm8k[-1].endswith("better")
    assert other[-3:] == ["–", "–", "–"]


def test_the_page_is_one_file_in_which_data_stay_data(tmp_path: Path) -> None:
    store = training(tmp_path)
    report = make_report(store, read_overview(store, []))
    write_report(tmp_path / "report.html", report, title=HOSTILE)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.count("<script") == page.count("</script>") == 3
    assert "<img" not in page
    hosts = set(re.findall(r"https?://[^\"'<> ]+", page))
    assert hosts <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names of formats
    assert not re.search(r"<(?:img|script|iframe|image|use)\b[^>]* (?:src|href)=|<link|@import|url\((?!#)", page)
    for words in ("against the first checkpoint: 1 better", "drift.detected", "step 300", 'aria-label="a, /ckpt/200'):
        assert words in page
    (embedded,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    data = json.loads(embedded)
    assert {sample["flip"] for sample in data if sample["dataset"] == "gsm8k"} == {"", "became wrong"}
    assert next(sample["completion"] for sample in data if sample["dataset"] == "x") == HOSTILE


def test_every_chart_is_written_as_svg_and_png(tmp_path: Path) -> None:
    store = training(tmp_path)
    files = write_charts(tmp_path, make_report(store, read_overview(store, [])))
    names = {file.stem for file in files}
    assert names == {"curve-accuracy", "curve-pass-at-2", "curve-response_length", "changes", "pass-at-k", "lengths"}
    for file in files:
        if file.suffix == ".svg":
            assert ElementTree.fromstring(file.read_text("utf-8")).tag.endswith("svg")
        else:
            assert file.read_bytes().startswith(b"\x89PNG")
