"""The page of a run in Markdown: what was found, against what; names are data."""

from datetime import UTC, datetime
from pathlib import Path

from markdown_it import MarkdownIt

from infra.store import open_store
from schemas.comparison import Comparison
from schemas.degeneration import DegenerationReport, DegenerationSign
from schemas.drift import OutputDrift
from schemas.regression import RegressionCheck, RegressionReport
from schemas.store import PublishedRun
from schemas.summary import MetricValue, RunSummary
from tasks.report.page import NO_GUARDS, Guards
from tasks.report.run_summary import EarlierRun, read_earlier_run, summarise_run

HOSTILE = "ckpt|`<script>`\n# heading [x](http://evil)"


def metric(value: float | None, stderr: float | None = 0.05) -> MetricValue:
    return MetricValue(
        subset="all",
        metric="accuracy",
        value=value,
        stderr=stderr,
        ci_low=None,
        ci_high=None,
        num_planned=1000,
        num_scored=990,
        num_failed=10,
        higher_is_better=True,
    )


def summary(checkpoint: str = "ckpt") -> RunSummary:
    return RunSummary(
        run_id="r2",
        experiment_name="e",
        trial_name="t",
        checkpoint=checkpoint,
        weight_digest="0" * 32,
        global_step=1400,
        dataset="gsm8k",
        dataset_version="1" * 32,
        run_dir=Path("runs/r2"),
        store=Path("store"),
        metrics=(metric(0.5),),
        num_planned=1000,
        num_scored=990,
        num_failed=10,
        num_attempts=2,
        num_resumed=17,
        wall_s=1.0,
        engine_s=1.0,
        consistency="agree",
    )


def earlier(difference: float | None) -> EarlierRun:
    comparison = Comparison(
        difference=difference,
        stderr=None,
        ci_low=-0.1,
        ci_high=0.02,
        p_value=0.18,
        minimum_detectable_effect=0.08,
        baseline_mean=0.54,
        candidate_mean=0.5,
        paired=True,
        num_items=500,
        differences=(),
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    run = PublishedRun(
        **summary(HOSTILE).model_dump(include={"experiment_name", "trial_name", "checkpoint", "weight_digest"}),
        run_id="r1",
        global_step=1300,
        dataset="gsm8k",
        dataset_version="1" * 32,
        started_at=now,
        finished_at=now,
        engine="vllm",
        plan_key="k",
        num_planned=1000,
        num_scored=1000,
        num_failed=0,
        accuracy=0.54,
    )
    return EarlierRun(run=run, metrics=(metric(0.54),), comparison=comparison)


def test_the_first_run_stands_alone() -> None:
    page = summarise_run(summary(), NO_GUARDS, None)
    assert "## Accuracy 0.500 ± 0.050 on gsm8k" in page
    assert "ckpt (step 1,400): 990 of 1,000 samples scored, 10 without a verdict." in page
    assert "attempts: 2; 17 samples taken over" in page
    assert "against" not in page
    assert f"- report: {(Path.cwd() / 'runs/r2/report.html').as_uri()} (paste" in page.replace("\\", "")


def test_the_address_of_a_report_is_one_whatever_its_folder_is_called() -> None:
    hostile = summary().model_copy(update={"run_dir": Path("/out/a `b` <c>|d\n# e")})
    (line,) = (line for line in summarise_run(hostile, NO_GUARDS, None).splitlines() if line.startswith("- report"))
    assert line.startswith("- report: file:///out/a%20%60b%60%20%3Cc%3E%7Cd%0A%23%20e/report.html (paste")


def test_a_later_run_stands_against_the_earlier_one_with_its_error() -> None:
    page = summarise_run(summary(), NO_GUARDS, earlier(-0.04))
    assert "Mean score per problem 0.540 -> 0.500, **-0.040** [-0.100, +0.020] against" in page
    assert "(step 1,300), p 0.180, over 500 problems; changes of 0.080 and more" in page
    assert "| accuracy | 0.500 ± 0.050 | 0.540 ± 0.050 |" in page


def test_every_guard_that_looked_says_what_it_found() -> None:
    check = RegressionCheck(
        against="best",
        run_id="r0",
        checkpoint=HOSTILE,
        global_step=900,
        value=0.5,
        against_value=0.61,
        difference=-0.11,
        ci_low=-0.15,
        ci_high=-0.07,
        num_items=500,
        p_value=0.0001,
        level=0.001,
        is_regression=True,
    )
    sign = DegenerationSign(name="repeating", share=0.2, ci_low=0.15, num_items=500, threshold=0.1)
    found = Guards(
        regression=RegressionReport(metric="accuracy", minimum_effect=0.02, num_looks=3, checks=(check,)),
        degeneration=DegenerationReport(signs=(sign,)),
    )
    page = summarise_run(summary(), found, None).replace("\\", "")
    assert "- **regression**: accuracy 0.500 is 0.110 below the best checkpoint's 0.610 (step 900, run r0)" in page
    assert "- **degenerate generation**: 0.200 of the completions are repeating without end" in page
    harmless = Guards(
        regression=RegressionReport(
            metric="accuracy",
            minimum_effect=0.02,
            num_looks=3,
            checks=(check.model_copy(update={"is_regression": False}),),
        ),
        degeneration=DegenerationReport(signs=(sign.model_copy(update={"ci_low": 0.05}),)),
    )
    page = summarise_run(summary(), harmless, None)
    assert "- regression: none" in page
    assert "- degenerate generation: no sign" in page


def test_what_is_undefined_is_a_dash() -> None:
    assert "**–** [-0.100" in summarise_run(summary(), NO_GUARDS, earlier(None))


def test_nothing_in_a_name_is_markup() -> None:
    html = MarkdownIt().enable("table").render(summarise_run(summary(HOSTILE), NO_GUARDS, earlier(-0.04)))
    assert "&lt;script&gt;" in html
    for markup in ("<script", "<a ", "<h1", "<code"):
        assert markup not in html
    assert html.count("<tr>") == 2


def test_an_earlier_run_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    guards = Guards(outputs=OutputDrift(baseline="gone", features=()))
    assert read_earlier_run(open_store(tmp_path), summary(), guards) is None
