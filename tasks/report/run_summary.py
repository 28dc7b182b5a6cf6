"""What a run found, on one page of Markdown: for the artifact on the Prefect run's page."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from infra.fileroot.run_directory import RunDirectory
from infra.store import Store
from infra.text.tables import UNDEFINED, TextTable, escape_markdown, format_number, to_markdown
from schemas.comparison import Comparison
from schemas.errors import DatasetError, StoreError
from schemas.stand_in import DUMMY_ENGINE, is_dummy
from schemas.store import PublishedRun
from schemas.summary import WHOLE_SET, MetricValue, RunSummary
from tasks.degeneration.report import describe as describe_degeneration
from tasks.drift.report import name_verdict
from tasks.metrics.published import compare_runs
from tasks.regression.report import describe as describe_regression
from tasks.report.metrics_table import format_estimate, headline_metrics
from tasks.report.page import Guards

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """The last comparable run of another checkpoint, beside the run that is shown."""

    run: PublishedRun
    """That run."""
    metrics: tuple[MetricValue, ...]
    """Its metrics over the whole dataset."""
    comparison: Comparison
    """How the run that is shown differs from it."""


def read_earlier_run(store: Store, summary: RunSummary, guards: Guards) -> EarlierRun | None:
    """Return the run that the outputs were compared with, and how much better this one is.

    None without such a run, or where the store no longer holds it whole: what is published does not fail for that.
    """
    if guards.outputs is None:
        return None
    baseline = guards.outputs.baseline
    run = next((run for run in store.runs() if run.run_id == baseline), None)
    if run is None:
        return None
    try:
        rows = store.table("metrics", run_id=baseline).to_table(columns=list(MetricValue.model_fields)).to_pylist()
        comparison = compare_runs(store, baseline, summary.run_id)
    except (StoreError, DatasetError) as exc:
        logger.warning("not compared with run %s: %s", baseline, exc)
        return None
    whole = tuple(MetricValue.model_validate(row) for row in rows if row["subset"] == WHOLE_SET)
    return EarlierRun(run=run, metrics=whole, comparison=comparison)


def summarise_run(summary: RunSummary, guards: Guards, earlier: EarlierRun | None) -> str:
    """Return the page; names of checkpoints, datasets and folders are data and are escaped."""
    return "\n".join(_lines(summary, guards, earlier))


def _lines(summary: RunSummary, guards: Guards, earlier: EarlierRun | None) -> Iterator[str]:
    metrics = [row for row in headline_metrics(summary.metrics) if row.subset == WHOLE_SET]
    accuracy = next((format_estimate(row) for row in metrics if row.metric == "accuracy"), UNDEFINED)
    yield f"## Accuracy {accuracy} on {escape_markdown(summary.dataset)}"
    yield ""
    if is_dummy(summary.engine):
        yield f"**{DUMMY_ENGINE}**: the answers are made up and say nothing of the checkpoint.\n"
    yield (
        f"{escape_markdown(summary.checkpoint)}{_step(summary.global_step)}{_base(summary)}: {summary.num_scored:,} of "
        f"{summary.num_planned:,} samples scored, {summary.num_failed:,} without a verdict."
        + (f" {summary.num_skipped_rows:,} rows of the dataset were left out." if summary.num_skipped_rows else "")
    )
    yield ""
    if earlier is not None:
        yield f"{_describe_change(earlier)}\n"
    yield to_markdown(_tabulate(metrics, earlier))
    yield from _findings(summary, guards)
    yield ""
    yield f"- run: {escape_markdown(summary.run_id)}"
    # as text: a browser follows no link from a server's page to a file
    page = RunDirectory(path=summary.run_dir).page_path.absolute().as_uri()
    yield f"- report: {escape_markdown(page)} (paste it into the address bar of a browser on its machine)"
    places = {
        "logs": f"{summary.run_dir}/logs",
        "samples": f"{summary.store}/samples",
        "metrics": f"{summary.store}/metrics",
    }
    yield from (f"- {name}: {escape_markdown(place)}" for name, place in places.items())


def _describe_change(earlier: EarlierRun) -> str:
    found = earlier.comparison
    visible = f"changes of {format_number(found.minimum_detectable_effect)} and more are seen 8 times in 10"
    return (
        f"Mean score per problem {format_number(found.baseline_mean)} -> {format_number(found.candidate_mean)}, "
        f"**{_signed(found.difference)}** [{_signed(found.ci_low)}, {_signed(found.ci_high)}] against "
        f"{escape_markdown(earlier.run.checkpoint)}{_step(earlier.run.global_step)}, "
        f"p {format_number(found.p_value)}, over {found.num_items:,} problems; {visible}."
    )


def _tabulate(metrics: list[MetricValue], earlier: EarlierRun | None) -> TextTable:
    if earlier is None:
        return TextTable(["metric", "this run"], [[row.metric, format_estimate(row)] for row in metrics])
    before = {row.metric: format_estimate(row) for row in earlier.metrics}
    header = ["metric", "this run", f"run {earlier.run.run_id}{_step(earlier.run.global_step)}"]
    return TextTable(header, [[row.metric, format_estimate(row), before.get(row.metric, UNDEFINED)] for row in metrics])


def _findings(summary: RunSummary, guards: Guards) -> Iterator[str]:
    if guards.drift is not None:
        found = "**found**" if guards.drift.alarmed else name_verdict(guards.drift)
        yield f"- drift of the validation set: {found}"
    if guards.consistency is not None:
        emphasis = "**" if guards.consistency.verdict == "disagree" else ""
        yield f"- {emphasis}{escape_markdown(guards.consistency.message)}{emphasis}"
    if guards.regression is not None:
        worse = [
            describe_regression(guards.regression, check) for check in guards.regression.checks if check.is_regression
        ]
        yield from (f"- **regression**: {escape_markdown(sentence)}" for sentence in worse)
        if not worse:
            yield "- regression: none"
    if guards.degeneration is not None:
        raised = describe_degeneration(guards.degeneration.signs)
        yield f"- **degenerate generation**: {raised}" if raised else "- degenerate generation: no sign"
    if summary.num_attempts > 1:
        yield f"- attempts: {summary.num_attempts}; {summary.num_resumed:,} samples taken over from earlier ones"
    yield from (f"- mixed: {escape_markdown(difference)}" for difference in summary.differences)


def _base(summary: RunSummary) -> str:
    return f", a LoRA adapter on {escape_markdown(summary.base_checkpoint)}" if summary.base_checkpoint else ""


def _step(step: int | None) -> str:
    return "" if step is None else f" (step {step:,})"


def _signed(value: float | None) -> str:
    return format_number(value, "+.3f")
