"""What a user sees in a browser: the form is the configuration, a bad value is refused with its reason, a run tells its
story. Screenshots of each step lie in the test's folder."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from tasks.report.curve import draw_training_curve
from tests.support.prefect_server import Served, wait_for
from tests.support.training_stores import publish_run

pytestmark = [
    pytest.mark.needs_browser,
    pytest.mark.needs_prefect,
    pytest.mark.needs_engine,
    pytest.mark.timeout(1800),
]

PATIENCE_MS = 60_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture
def page(served: Served) -> Iterator[Page]:
    """A page of a real browser, which may ask the server and nobody else."""
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        pytest.skip("no Chromium: run `make test`, or install Debian's package chromium")
    asked: list[str] = []
    with sync_playwright() as playwright:
        # Chromium's own sandbox refuses to start for root
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=browser_path, args=arguments, timeout=3 * PATIENCE_MS)
        page = browser.new_page(viewport={"width": 1300, "height": 1400})
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        page.on("request", lambda request: asked.append(request.url))
        sign_in(page, served)
        yield page
        browser.close()
    foreign = [url for url in asked if not url.startswith((served.page, "data:", "blob:"))]
    assert foreign == []


def sign_in(page: Page, served: Served) -> None:
    """Give the login that the server's first page asks for."""
    shown = served.milepost("server", "--login")
    assert shown.returncode == 0, shown.stderr
    page.goto(served.page)
    page.get_by_placeholder("admin:pass").fill(shown.stdout.strip())
    page.get_by_role("button", name="Login").click()
    page.wait_for_url(lambda url: "login" not in url)


def field(page: Page, label: str) -> Locator:
    """The innermost part of the form that has this label."""
    title = page.locator(".schema-form-property__label", has_text=label)
    return page.locator(".schema-form-property", has=title).last


def test_the_form_starts_a_run_that_tells_its_story(served: Served, page: Page, tmp_path: Path) -> None:
    deployment = served.deployment("evaluate")
    page.goto(f"{served.page}/deployments/deployment/{deployment['id']}/run")
    first = page.locator(".schema-form-property__label").first
    expect(first).to_contain_text(re.compile("checkpoint.path", re.IGNORECASE))
    expect(field(page, "N Samples")).to_contain_text("Completions per problem")
    expect(field(page, "N Samples").locator("input")).to_have_value("1")
    page.screenshot(path=tmp_path / "1-form.png")

    field(page, "Experiment Name").locator("textarea").fill("by-hand")
    field(page, "N Samples").locator("input").fill("0")
    # the page shows it for five seconds
    page.evaluate(
        "() => { window.said = []; new MutationObserver(changes => changes.forEach(change => change.addedNodes.forEach("
        "node => said.push(node.textContent)))).observe(document.body, {childList: true, subtree: true}) }"
    )
    page.get_by_role("button", name="Submit").click()
    refusal = "'config.gconfig.n_samples'. Failure reason: 0 is less than the minimum of 1"
    page.wait_for_function("words => said.some(text => text.includes(words))", arg=refusal)
    page.screenshot(path=tmp_path / "2-refused.png")

    before = {run["id"] for run in served.runs("evaluate")}
    field(page, "N Samples").locator("input").fill("2")
    page.get_by_role("button", name="Submit").click()
    started = wait_for(lambda: [run for run in served.runs("evaluate") if run["id"] not in before], "run")
    (run,) = started
    assert run["parameters"]["config"]["gconfig"]["n_samples"] == 2
    assert run["parameters"]["config"]["experiment_name"] == "by-hand"

    page.goto(f"{served.page}/runs/flow-run/{run['id']}")
    assert served.finish(run["id"]) == "COMPLETED"
    expect(page.get_by_text("Completed", exact=True).first).to_be_visible()
    name = served.ask(f"flow_runs/{run['id']}", method="GET")["name"]
    assert name.endswith("(by-hand/trial0)"), name  # not the one that the form suggests
    expect(page.get_by_text("48 samples to make on 1 x stand_in")).to_be_visible()
    page.screenshot(path=tmp_path / "3-run.png")

    page.get_by_text("Artifacts", exact=True).click()
    expect(page.get_by_text("What was found, against what")).to_be_visible()
    page.screenshot(path=tmp_path / "4-artifacts.png")
    drift = re.compile("no drift|nothing compared yet")  # whether an earlier run of this server froze the reference
    for key, words in {"summary": "48 of 48 samples scored", "metrics": "48/48", "drift": drift}.items():
        page.goto(f"{served.page}/artifacts/artifact/{served.artifacts(run['id'])[key]['id']}")
        expect(page.get_by_text(words).first).to_be_visible()
        page.screenshot(path=tmp_path / f"5-{key}.png")


def test_the_curve_of_a_training_is_a_picture_on_the_page(served: Served, page: Page, tmp_path: Path) -> None:
    """Prefect's page leaves out what it holds for unsafe; it shows this."""
    store = publish_run(tmp_path / "store", "run-100", right=10, step=100)
    for step in (200, 300):
        store = publish_run(tmp_path / "store", f"run-{step}", right=step // 10, step=step)
    summary: Any = SimpleNamespace(experiment_name="exp", dataset="gsm8k")
    made = {"key": "summary-exp--gsm8k", "type": "markdown", "data": draw_training_curve(store, summary)}
    page.goto(f"{served.page}/artifacts/artifact/{served.ask('artifacts/', made)['id']}")
    picture = page.get_by_alt_text("accuracy over training")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 200
    page.screenshot(path=tmp_path / "6-curve.png")
