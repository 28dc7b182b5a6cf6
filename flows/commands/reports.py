"""`milepost report`: the checkpoints of trainings on one page."""

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.errors_and_options import DEFAULT_FILEROOT, AsJson, Fileroot, TableFormat, echo, errors_shown
from flows.commands.steps import Steps

reports = typer.Typer()


@reports.command()
def report(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN|EXPERIMENT", help="What to show; everything published if not given"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Page to write; report.html of the fileroot")
    ] = None,
    charts: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write each chart there too, as SVG and PNG")
    ] = None,
    table: Annotated[
        TableFormat | None, typer.Option(help="Print the table of latest results in this format instead of a page")
    ] = None,
    fileroot: Fileroot = DEFAULT_FILEROOT,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file about trainings: curves over steps, changes, samples. It loads nothing from elsewhere."""
    with errors_shown(as_json=as_json), Steps(are_shown=table is None) as steps:
        import json

        from infra.store import open_store
        from infra.text.tables import format_table
        from tasks.report.changes import find_changes
        from tasks.report.overview_page import make_report, tabulate_latest, write_charts, write_report
        from tasks.report.series import read_overview

        steps.show("reading the store")
        store = open_store(fileroot)
        overview = read_overview(store, names or [])
        if table is not None:
            latest = tabulate_latest(overview, find_changes(store, overview))
            typer.echo(format_table(latest, table), nl=False)
            return
        steps.show("comparing checkpoints and drawing")
        page = output or fileroot / "report.html"
        for folder in (page.parent, *([charts] if charts else [])):
            _make_folder(folder)
        found = make_report(store, overview)
        written = [] if charts is None else write_charts(charts, found)
        write_report(page, found, title=", ".join(names or overview.experiments))
        steps.stop()
        if as_json:
            document = {"report": str(page), "charts": [str(path) for path in written], "num_runs": len(overview.runs)}
            typer.echo(json.dumps(document))
            return
        echo(f"{len(overview.runs):,} runs on {len(overview.datasets)} datasets: {page}")
        if charts is not None:
            echo(f"{len(written)} files of charts: {charts}")


def _make_folder(folder: Path) -> None:
    """Make a folder to write to.

    Raises:
        ConfigError: it cannot be made.
    """
    from schemas.errors import ConfigError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigError(f"cannot write to the folder {folder} ({exc.strerror}): name another one") from exc
