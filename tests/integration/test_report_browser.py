"""The report over checkpoints in a real browser: it asks no host, hostile text is inert, samples by key and filter."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tasks.report.overview_page import make_report, write_report
from tasks.report.series import read_overview
from tests.support.training_stores import publish_run

pytestmark = pytest.mark.needs_browser

HOSTILE = "</script><img src=x onerror=\"document.title='pwned'\"><b>bold</b>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium: run `make test`, or install Debian's package chromium")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=path, args=arguments, timeout=180_000)
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    for step, right in ((100, 20), (200, 45)):
        publish_run(folder, f"run-{step}", right=right, step=step, checkpoint=HOSTILE)
    store = publish_run(
        folder, "other", right=3, step=100, dataset="x", texts={"prompt": HOSTILE, "completion": "needle"}
    )
    write_report(folder / "report.html", make_report(store, read_overview(store, [])), title=HOSTILE)
    return folder / "report.html"


@pytest.mark.parametrize(("theme", "width"), [("light", 1300), ("dark", 390)])
def test_the_page_asks_nobody_and_shows_samples(browser: Browser, report: Path, theme: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)  # type: ignore[arg-type]
    page.set_default_timeout(60_000)
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # only tables and charts scroll sideways
    assert page.locator(".chart svg").count() >= 3
    colour = page.locator(".chart path[stroke='var(--line-0)']").first.evaluate("it => getComputedStyle(it).stroke")
    assert colour == {"light": "rgb(0, 114, 178)", "dark": "rgb(76, 181, 245)"}[theme]
    page.locator(".chart [role='graphics-symbol'][aria-label*='accuracy 0.75']").first.hover(force=True)
    assert "[0.75, 0.75]" in page.locator("#tip").inner_text()
    first = page.locator("#sample").inner_text()
    page.locator("h1").click()
    page.keyboard.press("j")
    assert page.locator("#sample").inner_text() != first
    address = page.url
    page.goto(address)
    assert page.url == address
    page.locator("#search").fill("needle")
    assert "<b>bold</b>" in page.locator("#sample").inner_text()  # the prompt, as text
    assert page.locator("#list button").count() == page.locator("#list button", has_text="i").count() > 0
    page.locator("#search").fill("no such words")
    assert page.locator("#sample").inner_text() == "No sample matches."
    assert (asked[0], set(asked)) == (
        report.as_uri(),
        {report.as_uri()} | {url for url in asked if url.startswith(report.as_uri())},
    )
    assert said == []
    assert page.title() == HOSTILE
    page.close()


def test_a_server_shows_all_samples_to_who_has_the_token_and_to_nobody_else(browser: Browser, tmp_path: Path) -> None:
    for step, right in ((100, 20), (200, 45)):
        publish_run(tmp_path, f"run-{step}", right=right, of=300, step=step)
    command = [sys.executable, "-P", "-m", "milepost", "view", "--port", "0", "--fileroot", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        assert server.stdout is not None
        opened = server.stdout.readline().split()[1]
        address = opened.partition("/?")[0]

        def status_of(path: str, **headers: str) -> int:
            return httpx.get(f"{address}{path}", headers=headers, timeout=60, trust_env=False).status_code

        assert [status_of(path) for path in ("/", "/?token=x", "/api/samples", "/api/state", "/run/run-100")] == [
            403
        ] * 5
        assert status_of("/", Host="evil.example") == 400
        page = browser.new_page()
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        page.goto(opened)
        assert page.url == f"{address}/"  # the token is out of the address
        expect(page.locator("#count")).to_have_text("the first 200 of 300 samples")
        page.locator("#flip").select_option("became right")
        expect(page.locator("#count")).to_have_text("25 samples")
        page.locator("#checkpoint").select_option("step 100")
        expect(page.locator("#count")).to_have_text("0 samples")  # nothing is before the first
        page.locator("#flip").select_option("")
        page.locator("#search").fill("ANSWER 299")
        expect(page.locator("#count")).to_have_text("1 samples")
        expect(page.locator("#sample")).to_contain_text("step 100 · problem i299 · repeat 0")
        publish_run(tmp_path, "run-300", right=50, of=300, step=300)
        page.get_by_role("button", name="New results").click()
        expect(page.locator("table").first).to_contain_text("step 300")
        answer = page.request.get(f"{address}/api/sample?run_id=../x&item_id=i0&repeat=0")
        assert (answer.status, page.request.get(f"{address}/run/run-300").status) == (404, 404)
        page.close()
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130
