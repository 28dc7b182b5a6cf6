"""The command `milepost`. Parses, calls, prints; decides nothing about evaluation.

Exit codes: 0 done, 1 the run failed, 2 the user's input is wrong (nothing was launched, no traceback), 3 done, but a
gate failed, 128 + signal it was interrupted (130 Ctrl-C, 143 SIGTERM) and the same command goes on.
"""

import io
import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flows.commands.comparison import comparison
from flows.commands.config_option import ConfigCommand
from flows.commands.datasets import dataset
from flows.commands.devcluster import devcluster
from flows.commands.errors_and_options import (
    DEFAULT_FILEROOT,
    AsJson,
    ConfigPath,
    Fileroot,
    Overrides,
    TableFormat,
    echo,
    errors_shown,
    set_prefect_defaults,
    show,
)
from flows.commands.logs import logs
from flows.commands.reports import reports
from flows.commands.servers import deploy, server
from flows.commands.steps import Steps
from flows.commands.view import viewing
from flows.commands.watching import status, watch
from flows.orchestration.server_access import load_prefect
from schemas.errors import ConfigError, MilepostError
from schemas.gates import GATE_FAILED, GATES

if TYPE_CHECKING:
    from schemas.summary import RunSummary

app = typer.Typer(
    name="milepost",
    help="Evaluates the checkpoints of an LLM training run as they land.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(devcluster)
app.add_typer(dataset)
app.add_typer(comparison)
app.add_typer(reports)
app.add_typer(viewing)
app.command()(logs)
app.command(cls=ConfigCommand)(watch)
app.command(cls=ConfigCommand)(status)
app.command(cls=ConfigCommand)(deploy)
app.command()(server)

_END_S: Final = 30.0
"""Seconds that Prefect has to send its last records after a run that ended by itself."""
_INTERRUPTED_END_S: Final = 5.0
"""The same after an interruption: whoever asked for the end waits for it."""
_LOG_END_S: Final = 2.0
"""Seconds that the last log lines have to reach a server of the command's own."""

DEMO_CHECKPOINT: Final = Path(".demo/smollm2-135m-instruct")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version as version_of

        typer.echo(version_of("milepost"))
        raise typer.Exit


@app.callback()
def milepost(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Evaluates the checkpoints of an LLM training run as they land."""


@app.command(cls=ConfigCommand)
def evaluate(
    config: ConfigPath,
    overrides: Overrides = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Show the resolved configuration with the origin of each value")
    ] = False,
    fail_on: Annotated[
        str, typer.Option(metavar="GATES", help="End with exit code 3 on any of: drift,inconsistency,regression")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Evaluate one checkpoint on one dataset. The same command again resumes an unfinished run."""
    with errors_shown(as_json=as_json), Steps(are_shown=not print_config) as steps:
        steps.show("reading the configuration")
        from schemas.config import describe_sampling, load_with_origins, render_config

        gates = _parse_gates(fail_on)
        loaded = load_with_origins(config, overrides or ())
        if print_config:
            typer.echo(render_config(loaded), nl=False)
            return
        if loaded.notice:
            echo(loaded.notice, err=True)
        steps.show("checking dataset, checkpoint and engine")
        from flows.preflight import check_inputs
        from tasks.inference.replicas.prewarm import start_workers

        check_inputs(loaded.config)
        echo(describe_sampling(loaded), err=True)
        set_prefect_defaults()  # part of the environment that the workers get
        start_workers(loaded.config)

        def load() -> "Callable[[], RunSummary]":
            from flows.evaluate import evaluate

            return lambda: evaluate(loaded.config)

        _end(_run_flow(load, steps), as_json=as_json, gates=gates)


def _parse_gates(text: str) -> frozenset[str]:
    gates = frozenset(filter(None, text.split(",")))
    unknown = sorted(gates - set(GATES))
    if unknown:
        raise ConfigError(f"--fail-on has no gate {unknown[0]!r}; allowed: {', '.join(GATES)}, joined by commas")
    return gates


@app.command()
def regrade(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run to grade again, as `milepost runs` lists it")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes, such as grading.timeout_s=60")
    ] = None,
    fileroot: Fileroot = DEFAULT_FILEROOT,
    as_json: AsJson = False,
) -> None:
    """Grade the samples of a run again, without generating; the result is a new run, the old one stays."""
    with errors_shown(as_json=as_json), Steps() as steps:
        steps.show("reading the run")
        from infra.fileroot.run_names import complete_run_name
        from tasks.regrading.stage import plan_regrading

        run = complete_run_name(fileroot, run)
        plan_regrading(fileroot, run, overrides or ())

        def load() -> "Callable[[], RunSummary]":
            from flows.regrade import regrade

            return lambda: regrade(run, overrides or (), str(fileroot))

        _end(_run_flow(load, steps), as_json=as_json)


def _end(summary: "RunSummary", *, as_json: bool, gates: frozenset[str] = frozenset()) -> None:
    """Print the outcome and end the process: with exit code 3 where one of `gates` failed."""
    from flows.commands.console import print_summary
    from flows.interruption import end_within
    from infra.fileroot.run_directory import RunDirectory

    show(summary, print_summary, as_json=as_json)
    failed = [gate for gate in summary.alarms if gate in gates]
    if failed:
        page = RunDirectory(path=summary.run_dir).page_path
        echo(f"gate failed: {', '.join(failed)}; see {page}", err=True)
    exit_code = GATE_FAILED if failed else 0
    end_within(_END_S, exit_code)
    raise typer.Exit(exit_code)


def _run_flow(load: "Callable[[], Callable[[], RunSummary]]", steps: Steps) -> "RunSummary":
    """Run a flow against the user's Prefect API, else one of this command's own. A failure ends the process soon.

    `load` imports the flow, for which Prefect must be set up, while the server starts.
    """
    from flows.interruption import Interrupted, end_within, interruptible

    try:
        with interruptible(), _prefect_api(steps) as api_is_ready:
            from flows.commands.console import shown_progress

            run = load()
            api_is_ready()
            steps.stop()
            with shown_progress("reading dataset and checkpoint"):
                return run()
    except MilepostError as exc:
        end_within(_END_S, exc.exit_code)
        raise
    except Interrupted as exc:
        end_within(_INTERRUPTED_END_S, exc.exit_code)
        typer.echo(f"interrupted by {exc}; what is finished is kept: run the same command to go on", err=True)
        raise typer.Exit(exc.exit_code) from exc
    except Exception as exc:
        from flows.orchestration.prefect_answers import translate

        failure = translate(exc)
        end_within(_END_S, 1)
        if failure is None:
            raise
        raise failure from exc


@contextmanager
def _prefect_api(steps: Steps) -> Generator[Callable[[], None]]:
    """Have a Prefect API while the block runs; call what is yielded before it is needed."""
    set_prefect_defaults()
    steps.show("loading Prefect")
    load_prefect()
    from prefect.logging.handlers import APILogWorker
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, PREFECT_HOME, temporary_settings

    from flows.orchestration.local_server import LocalServer

    if PREFECT_API_URL.value():
        steps.show(f"asking the Prefect server at {PREFECT_API_URL.value()}")
        from flows.orchestration.prefect_answers import require_answer

        require_answer()
        yield lambda: None
        return
    steps.show("starting a Prefect server for this command")
    with LocalServer(PREFECT_HOME.value()) as server, ExitStack() as settings:

        def use_server() -> None:
            url = server.wait_ready()
            settings.enter_context(temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: server.login}))

        try:
            yield use_server
        finally:
            # what the flow logged last is sent while there is a server to take it
            APILogWorker.drain_all(timeout=_LOG_END_S)


@app.command()
def runs(  # noqa: PLR0913 - one parameter per option
    experiment: Annotated[str | None, typer.Option(metavar="NAME", help="Runs of this experiment alone")] = None,
    checkpoint: Annotated[str | None, typer.Option(metavar="PART", help="Runs whose checkpoint has this in it")] = None,
    dataset: Annotated[str | None, typer.Option(metavar="PART", help="Runs whose dataset has this in it")] = None,
    fileroot: Fileroot = DEFAULT_FILEROOT,
    latest: Annotated[
        bool, typer.Option("--latest", help="Only the last of the runs that repeat one another or grade it again")
    ] = False,
    form: Annotated[TableFormat | None, typer.Option("--format", help="Print the table in this format")] = None,
    as_json: AsJson = False,
) -> None:
    """List the published runs, the newest first, and those that wait to be resumed."""
    with errors_shown(as_json=as_json):
        from flows.commands.console import print_runs, tabulate_runs
        from infra.fileroot.run_directory import unfinished_runs
        from infra.store import open_store
        from infra.text.tables import format_table
        from schemas.run import RunState
        from schemas.store import PublishedRun

        def is_wanted(run: "PublishedRun | RunState") -> bool:
            of_dataset = run.dataset if isinstance(run, PublishedRun) else ""
            return (
                experiment in (None, run.experiment_name)
                and (checkpoint or "") in run.checkpoint
                and (dataset or "") in of_dataset
            )

        store = open_store(fileroot)
        published = list(filter(is_wanted, store.latest_runs() if latest else store.runs()))
        unfinished = list(filter(is_wanted, unfinished_runs(fileroot)))
        if as_json:
            document = {
                "runs": [run.model_dump(mode="json") for run in published],
                "unfinished": [state.model_dump(mode="json") for state in unfinished],
            }
            typer.echo(json.dumps(document))
        elif form is not None:
            typer.echo(format_table(tabulate_runs(published, unfinished), form), nl=False)
        else:
            print_runs(published, unfinished)


@app.command()
def doctor(
    fileroot: Fileroot = DEFAULT_FILEROOT,
    checkpoint: Annotated[Path, typer.Option(help="Checkpoint to look at")] = DEMO_CHECKPOINT,
    engine_python: Annotated[str | None, typer.Option(help="Interpreter of the engine environment")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Read versions instead of importing the packages")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what this machine has and lacks for an evaluation, and how to get it. Exit code 1 when it lacks something."""
    with errors_shown(as_json=as_json), Steps() as steps:
        steps.show("looking at this machine")
        from flows.commands.console import print_checks
        from flows.orchestration.server_access import export_settings, name_source, reach_loopback_directly
        from infra.diagnostics import Surroundings, diagnose
        from infra.machine.engine_environment import find_engine_python
        from schemas.diagnosis import CheckStatus, Diagnosis
        from tasks.alerts.diagnosis import check_alerts

        reach_loopback_directly()
        load_prefect()
        source = name_source()
        export_settings()
        surroundings = Surroundings(
            engine_python=find_engine_python(engine_python),
            fileroot=fileroot,
            checkpoint=checkpoint,
            prefect_api_url=os.environ.get("PREFECT_API_URL"),
            prefect_api_source=source,
        )
        found = Diagnosis(checks=(*diagnose(surroundings, quick=quick), *check_alerts(fileroot)))
        steps.stop()
        show(found, lambda diagnosis: print_checks(diagnosis.checks), as_json=as_json)
    if any(check.status is CheckStatus.MISSING for check in found.checks):
        raise typer.Exit(1)


def main() -> None:
    """Entry point of the console script."""
    # Progress and results must not die of a terminal that cannot print a character of a dataset.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
