"""What the command line shows: results on stdout, progress and errors on stderr, so that stdout can be piped."""

import logging
import re
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from infra.fileroot.run_directory import RunDirectory
from infra.text.plain_text import to_terminal_line, to_terminal_log, to_terminal_text
from infra.text.tables import UNDEFINED, TextTable, format_number
from schemas.comparison import Comparison
from schemas.diagnosis import Check, CheckStatus
from schemas.progress import PROGRESS_LOGGER, ReplicaProgress
from schemas.run import RunState
from schemas.stand_in import DUMMY_ENGINE, is_dummy
from schemas.states import WorkerPhase
from schemas.store import PublishedRun
from schemas.summary import RunSummary
from tasks.report.metrics_table import headline_metrics, tabulate_metrics

_PIPED_WIDTH: Final = 160
"""Columns of what is not printed on a terminal: it has no width of its own, and 80 would break every cell."""
OUT: Final = Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)
"""Results."""
ERR: Final = Console(stderr=True)
"""Everything else."""

_SHORT_NAMES: Final = {
    "response_length": "tokens",
    "truncation_rate": "truncated",
    "no_answer_rate": "no answer",
}
"""Column headings that say the same in less room."""
_RUN_COLUMNS: Final = ("run", "experiment", "checkpoint", "step", "dataset", "accuracy", "scored", "failed", "finished")
_SHORTENED: Final = ("checkpoint", "dataset")
_LEFT_OUT: Final = ("experiment", "scored", "failed", "finished", "step", "dataset")
"""Columns of `milepost runs` that a narrow terminal does without, the first one first."""
_LEAST_NAME: Final = 18
"""Letters by which a checkpoint's path is still known."""
_NUMBER: Final = re.compile(r"[-+]?[0-9.]+%?")
_MAX_SUBSETS: Final = 40
"""Rows of the table of metrics: a column of 3,000 values would push the whole set's row off every screen."""
_LINE_INTERVAL_S: Final = 10.0
"""Seconds between two progress lines of one phase in a log."""


def safe_text(text: str, style: str = "") -> Text:
    """Return data as one line for a terminal: neither markup nor escapes in it take effect."""
    return Text(to_terminal_line(text), style)


def print_summary(summary: RunSummary) -> None:
    """Print the metrics of a finished run and where its tables are."""
    table = tabulate_metrics(headline_metrics(summary.metrics))
    shown = Table(box=SIMPLE_HEAD, show_lines=False, pad_edge=False)
    for name in table.header:
        heading = safe_text(_SHORT_NAMES.get(name, name))
        shown.add_column(heading, justify="left" if name == "subset" else "right", overflow="fold")
    for row in table.rows[:_MAX_SUBSETS]:
        shown.add_row(*map(_metric_cell, row))
    title = safe_text(summary.checkpoint, "bold").append(" on ").append_text(safe_text(summary.dataset, "bold"))
    OUT.print(title, soft_wrap=True)
    if is_dummy(summary.engine):
        OUT.print(
            safe_text(f"{DUMMY_ENGINE}: the answers are made up and say nothing of the checkpoint"), style="yellow"
        )
    OUT.print(shown)
    if len(table.rows) > _MAX_SUBSETS:
        OUT.print(
            safe_text(f"… and {len(table.rows) - _MAX_SUBSETS:,} more subsets, in the table metrics"), style="dim"
        )
    OUT.print(safe_text("value, ± standard error or [95% interval]; – where there is too little to tell"), style="dim")
    if summary.num_skipped_rows:
        left_out = f"{summary.num_skipped_rows:,} rows of the dataset (valid_dataset.invalid_rows=skip)"
        OUT.print(safe_text(f"left out {left_out}"), style="yellow", soft_wrap=True)
    for alarm in summary.alarms:
        OUT.print(safe_text(f"alarm    {alarm}: see the report"), style="red", soft_wrap=True)
    for difference in summary.differences:
        OUT.print(safe_text(f"mixed    {difference}"), style="yellow", soft_wrap=True)
    places = {
        "run": summary.run_id,
        "metrics": f"{summary.store}/metrics  (all metrics, with 95% intervals)",
        "samples": f"{summary.store}/samples",
        "report": str(RunDirectory(path=summary.run_dir).page_path),
        "logs": f"{summary.run_dir}/logs",
    }
    for name, place in places.items():
        OUT.print(safe_text(f"{name:<8} {place}"), soft_wrap=True)


def _metric_cell(cell: str) -> Text:
    """A value above its error or interval, where the cell is one: a subset's name is data."""
    text = to_terminal_line(cell)
    value, _, error = text.partition(" ")
    is_estimate = _NUMBER.fullmatch(value) is not None and error.startswith(("± ", "["))
    shown = f"{value}\n{error.replace('± ', '±')}" if is_estimate else text
    return Text(shown)


def print_runs(published: Sequence[PublishedRun], unfinished: Sequence[RunState]) -> None:
    """Print one line per run."""
    if not published and not unfinished:
        OUT.print("no runs yet; start one with: milepost evaluate CONFIG")
        return
    cells = [[*map(to_terminal_line, row)] for row in tabulate_runs(published, unfinished).rows]
    width = OUT.width if OUT.is_terminal else None
    shown = Table(box=None, pad_edge=False)
    table = fit_columns(_RUN_COLUMNS, cells, width=width)
    for name in table.header:
        shown.add_column(name, no_wrap=True, justify="right" if name in ("accuracy", "scored", "failed") else "left")
    for row in table.rows:
        shown.add_row(*map(safe_text, row))
    OUT.print(shown, width=10_000 if width is None else None, crop=False, no_wrap=True, overflow="ignore")


def tabulate_runs(published: Sequence[PublishedRun], unfinished: Sequence[RunState]) -> TextTable:
    """Return one row per run."""
    rows = [_run_cells(run) for run in published] + [_unfinished_cells(state) for state in unfinished]
    return TextTable(list(_RUN_COLUMNS), [list(row) for row in rows])


def fit_columns(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None) -> TextTable:
    """Return the table of runs for a terminal of `width` columns; None: all of it.

    Long names are shortened in the middle, as their ends tell them apart; where that is not enough, columns are left
    out. The run, its accuracy and its checkpoint always stay.
    """
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    kept = list(range(len(header)))
    if width is None:
        return TextTable(list(header), [list(row) for row in rows])

    def total(longest_name: int) -> int:
        shown = (min(widths[i], longest_name) if header[i] in _SHORTENED else widths[i] for i in kept)
        return sum(shown) + len(kept) - 1

    for name in _LEFT_OUT:
        if total(_LEAST_NAME) > width:
            kept.remove(header.index(name))
    room = next((room for room in range(max(widths), _LEAST_NAME // 2, -1) if total(room) <= width), _LEAST_NAME // 2)
    return TextTable(
        [header[i] for i in kept],
        [[_shorten(row[i], room) if header[i] in _SHORTENED else row[i] for i in kept] for row in rows],
    )


def _shorten(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    head = (length - 1) // 3
    return f"{text[:head]}…{text[head + 1 - length :]}"


def _run_cells(run: PublishedRun) -> tuple[str, ...]:
    step = UNDEFINED if run.global_step is None else str(run.global_step)
    marked = f"{DUMMY_ENGINE} " if run.is_dummy else ""
    found = (marked + format_number(run.accuracy), f"{run.num_scored}/{run.num_planned}", str(run.num_failed))
    finished = f"{run.finished_at:%Y-%m-%d %H:%M}"
    return (
        run.run_id, run.experiment_name, run.checkpoint, step, run.dataset, *found, finished
    )  # fmt: skip


def _unfinished_cells(state: RunState) -> tuple[str, ...]:
    step = UNDEFINED if state.global_step is None else str(state.global_step)
    return (
        state.run_id, state.experiment_name, state.checkpoint, step, "", "", "", "", f"{state.status}, resumable"
    )  # fmt: skip


def print_comparison(comparison: Comparison) -> None:
    """Print the difference of two runs, after what else differs between them."""
    for difference in comparison.differences:
        OUT.print(safe_text(f"differs  {difference}"), style="yellow", soft_wrap=True)
    how = "paired by item" if comparison.paired else "independent sets"
    is_clustered = comparison.num_clusters not in (None, comparison.num_items)
    clusters = f" in {comparison.num_clusters} clusters" if is_clustered else ""
    interval = f"[{format_number(comparison.ci_low)}, {format_number(comparison.ci_high)}]"
    change = f"{format_number(comparison.difference, '+.3f')} {interval}"
    means = f"{format_number(comparison.baseline_mean)} -> {format_number(comparison.candidate_mean)}"
    lines = {
        "items": f"{comparison.num_items}{clusters}, {how}",
        "score": f"{means}, mean per problem",
        "change": f"{change} with 95% interval, p {format_number(comparison.p_value)}",
        "visible": f"changes of {format_number(comparison.minimum_detectable_effect)} and more, 8 times in 10",
    }
    for name, text in lines.items():
        OUT.print(safe_text(f"{name:<8} {text}"), soft_wrap=True)


def print_checks(checks: Sequence[Check]) -> None:
    """Print one line per check, and how to mend what is missing."""
    styles = {CheckStatus.OK: "green", CheckStatus.WARNING: "yellow", CheckStatus.MISSING: "red"}
    for check in checks:
        OUT.print(
            safe_text(f"{check.status.value:<8}", style=styles[check.status]),
            Text(to_terminal_text(f"{check.name}: {check.detail}")),
        )
        if check.fix:
            OUT.print(safe_text(f"         -> {check.fix}"))


def print_markdown(text: str) -> None:
    """Print a page rendered on a terminal, as it is where it is piped."""
    if OUT.is_terminal:
        OUT.print(Markdown(to_terminal_log(text)))
    else:
        OUT.file.write(f"{to_terminal_log(text)}\n")


class ProgressHandler(logging.Handler):
    """Turns progress records into one bar per replica on a terminal, into a line now and then elsewhere."""

    def __init__(self, bars: Progress | None, first_step: str) -> None:
        """Draw on `bars`, `first_step` until there is a replica to show; None prints plain lines."""
        super().__init__(logging.INFO)
        self._bars = bars
        self._first = None if bars is None else bars.add_task(first_step, total=None)
        self._tasks: dict[int, TaskID] = {}
        self._printed: dict[int, tuple[WorkerPhase, float]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        progress = getattr(record, "progress", None)
        if not isinstance(progress, ReplicaProgress):
            return
        if self._bars is None:
            self._print(progress)
            return
        if self._first is not None:
            self._bars.remove_task(self._first)
            self._first = None
        if progress.replica not in self._tasks:
            self._tasks[progress.replica] = self._bars.add_task(f"replica {progress.replica}", total=progress.num_work)
        self._bars.update(
            self._tasks[progress.replica],
            completed=progress.num_done,
            total=progress.num_work,
            description=to_terminal_line(progress.headline),
        )

    def _print(self, progress: ReplicaProgress) -> None:
        phase, printed_at = self._printed.get(progress.replica, (None, 0.0))
        now = time.monotonic()
        if phase is not progress.phase or now - printed_at >= _LINE_INTERVAL_S:
            self._printed[progress.replica] = (progress.phase, now)
            ERR.print(safe_text(progress.as_line()), soft_wrap=True)


@contextmanager
def shown_progress(first_step: str) -> Generator[None]:
    """Show log lines and progress of our packages on stderr while the block runs: `first_step`, then what comes."""
    bars = _bars() if sys.stderr.isatty() else None
    lines = _LineHandler(bars)
    progress = ProgressHandler(bars, first_step)
    if bars is None:
        ERR.print(safe_text(f"{first_step} …"), style="dim", soft_wrap=True)
    loggers = [logging.getLogger(name) for name in ("flows", "tasks", "infra")]
    progress_logger = logging.getLogger(PROGRESS_LOGGER)
    for logger in loggers:
        logger.addHandler(lines)
        logger.setLevel(logging.INFO)
    progress_logger.addHandler(progress)
    progress_logger.setLevel(logging.INFO)
    try:
        if bars is None:
            yield
        else:
            with bars:
                yield
    finally:
        for logger in loggers:
            logger.removeHandler(lines)
        progress_logger.removeHandler(progress)


class _LineHandler(logging.Handler):
    """Prints one log record as one line, above the bars where there are any."""

    def __init__(self, bars: Progress | None) -> None:
        super().__init__(logging.INFO)
        self._console = ERR if bars is None else bars.console

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else "dim"
        self._console.print(Text(to_terminal_text(record.getMessage())), style=style, soft_wrap=True)


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=ERR,
    )
