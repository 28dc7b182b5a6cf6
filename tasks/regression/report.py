"""A check for regressions in words: a table, and one sentence for an alert."""

from infra.fileroot.earlier_runs import describe_place
from infra.text.tables import UNDEFINED, TextTable, escape_markdown, to_markdown
from schemas.regression import RegressionCheck, RegressionReport


def summarise(report: RegressionReport | None) -> str:
    """Return the page of a report in Markdown."""
    if report is None:
        return "## No earlier checkpoint to compare with\n"
    verdict = "**worse than before**" if report.has_regressed else "no regression"
    sentences = [f"- {escape_markdown(describe(report, check))}" for check in report.checks if check.is_regression]
    return "\n".join((f"## {verdict}", "", to_markdown(tabulate(report)), *sentences, ""))


def tabulate(report: RegressionReport | None) -> TextTable:
    """Return one row per earlier checkpoint."""
    header = [
        "against",
        "step",
        "run",
        "mean score there",
        "mean score now",
        "difference",
        "95% interval",
        "p",
        "level",
        "verdict",
    ]
    return TextTable(header, [_row(check) for check in report.checks] if report else [])


def describe(report: RegressionReport, check: RegressionCheck) -> str:
    """Return what got worse, how much, and against what."""
    return (
        f"{report.metric} {check.value:.3f} is {-check.difference:.3f} below the {check.against} checkpoint's "
        f"{check.against_value:.3f} ({describe_place(check.run_id, check.global_step)}), 95% interval "
        f"{_interval(check)}, over {check.num_items} items"
        + ("; its config.json or EOS ids differ too" if check.config_differs else "")
    )


def _row(check: RegressionCheck) -> list[str]:
    return [
        check.against + (" (other config.json)" if check.config_differs else ""),
        UNDEFINED if check.global_step is None else str(check.global_step),
        check.run_id,
        f"{check.against_value:.3f}",
        f"{check.value:.3f}",
        f"{check.difference:+.3f}",
        _interval(check),
        f"{check.p_value:.2g}",
        f"{check.level:.2g}",
        "regression" if check.is_regression else "–",
    ]


def _interval(check: RegressionCheck) -> str:
    if check.ci_low is None or check.ci_high is None:
        return UNDEFINED
    return f"{check.ci_low:+.3f} to {check.ci_high:+.3f}"
