"""`milepost watch` and `milepost status`: the checkpoints of a folder, and the evaluations of each."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flows.commands.errors_and_options import (
    AsJson,
    ConfigPath,
    Overrides,
    echo,
    errors_shown,
    set_prefect_defaults,
    show,
)
from flows.commands.steps import Steps
from flows.orchestration.server_access import load_prefect

if TYPE_CHECKING:
    from schemas.config import EvaluationConfig
    from schemas.watch import WatchedCheckpoint, WatchOutcome, WatchStatus

Root = Annotated[Path, typer.Argument(metavar="ROOT", help="Folder that the trainer saves its checkpoints into")]
Also = Annotated[list[Path] | None, typer.Option("--also", metavar="CONFIG", help="Another evaluation of each")]

_ANY_CHECKPOINT: Final = "actor.path=checkpoint"
"""Stands for each checkpoint while the configuration is read; a `${actor.path}` in it means each one's own."""
_END_S: Final = 10.0
"""Seconds that the process has to end by itself."""
_FAILED: Final = 1


def watch(  # noqa: PLR0913 - each is an option of the command
    config: ConfigPath,
    root: Root,
    overrides: Overrides = None,
    also: Also = None,
    once: Annotated[bool, typer.Option("--once", help="Do what can be done now and end, as cron wants it")] = False,
    order: Annotated[str, typer.Option(metavar="newest|oldest", help="Which is first; else watch.order says")] = "",
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Run evaluations by the deployments of `milepost deploy --name NAME`")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Evaluate the checkpoints of ROOT as they land, each once. Ctrl-C ends it; the same command goes on."""
    with errors_shown(as_json=as_json), Steps() as steps:
        steps.show("reading the configuration")
        if order:
            overrides = [*(overrides or ()), f"watch.order={order}"]
        if name:
            overrides = [*(overrides or ()), "watch.launcher=deployment"]
        configs = _load([config, *(also or ())], overrides)
        set_prefect_defaults()
        os.environ.setdefault("PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore")  # its lines belong to no flow run
        steps.show("loading Prefect")
        load_prefect()
        # before the console: importing Prefect sets up logging anew
        from flows.watch import watch  # isort: skip
        from flows.commands.console import shown_progress
        from flows.interruption import Interrupted, end_within, interruptible

        try:
            steps.stop()
            with interruptible(), shown_progress(f"looking through {root}"):
                outcome = watch(configs, root, once=once, is_patient=not once, name=name)
        except Interrupted as exc:
            end_within(_END_S, exc.exit_code)
            typer.echo(f"interrupted by {exc}; what is finished is kept: the same command goes on", err=True)
            raise typer.Exit(exc.exit_code) from exc
        show(outcome, print_outcome, as_json=as_json)
        exit_code = exit_code_of(outcome)
        end_within(_END_S, exit_code)
        raise typer.Exit(exit_code)


def status(
    config: ConfigPath, root: Root, overrides: Overrides = None, also: Also = None, as_json: AsJson = False
) -> None:
    """Show the checkpoints of ROOT and how the evaluations of each stand. Changes nothing."""
    with errors_shown(as_json=as_json):
        from datetime import UTC, datetime

        from tasks.watching.root import find_root
        from tasks.watching.settling import make_evaluation
        from tasks.watching.status import read_status

        evaluations = [make_evaluation(each) for each in _load([config, *(also or ())], overrides)]
        real = find_root(root, evaluations, is_patient=False)
        show(read_status(real, evaluations, now=datetime.now(UTC)), _print_status, as_json=as_json)


def _load(paths: list[Path], overrides: list[str] | None) -> "list[EvaluationConfig]":
    from schemas.config import load_config

    return [load_config(path, [_ANY_CHECKPOINT, *(overrides or ())]) for path in paths]


def exit_code_of(outcome: "WatchOutcome") -> int:
    """Return the exit code of a watcher that has ended by itself."""
    return _FAILED if outcome.num_failed or outcome.given_up else 0


def print_outcome(outcome: "WatchOutcome") -> None:
    """Print the numbers, and a line for each evaluation that is given up."""
    typer.echo(
        f"{outcome.num_done} evaluated, {outcome.num_failed} attempts failed, {outcome.num_open} still to do, "
        f"{outcome.num_unusable} unusable" + (f", {len(outcome.given_up)} given up" if outcome.given_up else "")
    )
    for each in outcome.given_up:
        reason = " ".join(map(str.strip, each.reason.splitlines()))
        echo(f"given up: {each.path}, {each.evaluation}: {reason}; to have it tried anew, remove {each.folder}")


def _print_status(status: "WatchStatus") -> None:
    from rich.table import Table

    from flows.commands.console import OUT, safe_text

    def name_of(checkpoint: "WatchedCheckpoint") -> str:
        return str(checkpoint.path.relative_to(status.root))

    for alert in status.undelivered_alerts:
        OUT.print(safe_text(f"alert not delivered: {alert}"), style="yellow", soft_wrap=True)
    if not status.checkpoints:
        OUT.print(safe_text(f"no checkpoints in {status.root} yet"), soft_wrap=True)
        return
    shown = Table(box=None, pad_edge=False)
    for name in ("step", "checkpoint", *(evaluation.name for evaluation in status.evaluations)):
        shown.add_column(safe_text(name), overflow="fold")
    for checkpoint in status.checkpoints:
        step = "" if checkpoint.global_step is None else str(checkpoint.global_step)
        cells = (f"{cell.state} {cell.run_id or ''}".strip() for cell in checkpoint.cells)
        shown.add_row(*map(safe_text, (step, name_of(checkpoint), *cells)))
    OUT.print(shown)
    OUT.print(safe_text(", ".join(f"{count} {state}" for state, count in sorted(status.counts.items()))), style="dim")
    names = {evaluation.key: evaluation.name for evaluation in status.evaluations}
    for checkpoint in status.checkpoints:
        for cell in checkpoint.cells:
            if cell.detail:
                of = f", {names[cell.evaluation]}" if len(names) > 1 else ""
                line = f"{name_of(checkpoint)}{of}: {cell.state}: {' '.join(map(str.strip, cell.detail.splitlines()))}"
                OUT.print(safe_text(line), soft_wrap=True)
