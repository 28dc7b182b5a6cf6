"""`milepost drift` and `milepost refresh`: the validation set looked at and renewed without an evaluation."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.config_option import ConfigCommand
from flows.commands.errors_and_options import AsJson, ConfigPath, Overrides, echo, errors_shown, show
from flows.commands.steps import Steps
from schemas.gates import GATE_FAILED

if TYPE_CHECKING:
    from schemas.refresh import VersionManifest

dataset = typer.Typer()


@dataset.command(cls=ConfigCommand)
def drift(config: ConfigPath, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Compare what is asked now with the frozen reference. Exit code 3 when it drifted or breaks its contract."""
    with errors_shown(as_json=as_json), Steps() as steps:
        steps.show("reading the dataset")
        from flows.commands.console import print_markdown
        from schemas.config import load_config
        from schemas.training_position import TrainingPosition
        from tasks.drift.report import summarise
        from tasks.drift.stage import check_drift
        from tasks.refresh.source import read_current_rows

        loaded = load_config(config, overrides or ())
        now = datetime.now(UTC)
        check = check_drift(loaded, read_current_rows(loaded), position=TrainingPosition(), now=now)
        steps.stop()
        show(check, lambda found: print_markdown(summarise(found, now=now)), as_json=as_json)
    if check.alarmed:
        raise typer.Exit(GATE_FAILED)


@dataset.command(cls=ConfigCommand)
def refresh(
    config: ConfigPath,
    overrides: Overrides = None,
    rollback: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Go back to this version (a name, or v2) instead")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a new version of the validation set from refresh.pool and make it the one that is asked."""
    with errors_shown(as_json=as_json), Steps() as steps:
        steps.show("reading the dataset")
        from flows.commands.console import print_markdown
        from schemas.config import load_config
        from schemas.training_position import TrainingPosition
        from tasks.refresh.stage import refresh_validation_set, roll_back

        loaded = load_config(config, overrides or ())
        if rollback is not None:
            manifest = roll_back(loaded, rollback)
            steps.stop()
            show(manifest, _print_rollback, as_json=as_json)
            return
        outcome = refresh_validation_set(loaded, reason="command", position=TrainingPosition(), now=datetime.now(UTC))
        steps.stop()
        show(outcome, lambda found: print_markdown(found.summary), as_json=as_json)


def _print_rollback(manifest: "VersionManifest") -> None:
    echo(f"{manifest.dataset}: version {manifest.version} is asked from now on")
