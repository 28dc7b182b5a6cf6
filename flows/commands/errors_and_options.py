"""What the commands share: how errors are shown, options that mean the same everywhere."""

import json
import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import typer

from flows.orchestration.server_access import TELEMETRY_OFF, reach_loopback_directly
from infra.text.plain_text import escape_json, to_terminal_text
from schemas.errors import MilepostError
from schemas.paths import expand_user

if TYPE_CHECKING:
    from schemas.base import Model

Result = TypeVar("Result", bound="Model")

ConfigPath = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", help="YAML file, or --config FILE: Milepost's keys or an AReaL training config"),
]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Overrides, such as actor.path=ckpt/")]
# `--fileroot=~/out` reaches a command as it stands: no shell resolves it there
Fileroot = Annotated[
    Path, typer.Option(parser=expand_user, metavar="PATH", help="cluster.fileroot of the configuration")
]
TableFormat = Literal["markdown", "csv", "latex", "json"]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there")]
DEFAULT_FILEROOT: Final = Path("milepost-out")

_PREFECT_DEFAULTS: Final = {
    **TELEMETRY_OFF,
    # The command prints its own lines; Prefect's, tracebacks included, go to its API and are shown in its UI.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks,infra",
    # Its own threads report each record that a server which is gone does not take; the command says it once.
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
}


def set_prefect_defaults() -> None:
    """Set what the user has not set of Prefect's environment variables; call it before Prefect is imported."""
    for name, value in _PREFECT_DEFAULTS.items():
        os.environ.setdefault(name, value)
    if notice := reach_loopback_directly():
        echo(notice, err=True)
    # past all loggers, it prints the log lines that it cannot send, unless this is off
    logging.raiseExceptions = os.environ["PREFECT_LOGGING_INTERNAL_LEVEL"] == "DEBUG"


def echo(text: str, *, err: bool = False) -> None:
    """Print a message for people on stdout, or on stderr; what stands in it is data, which a terminal must not obey."""
    typer.echo(to_terminal_text(text), err=err)


@contextmanager
def errors_shown(*, as_json: bool) -> Generator[None]:
    """Turn an expected error into a message and an exit code; a bug keeps its traceback."""
    try:
        yield
    except MilepostError as exc:
        if as_json:
            typer.echo(
                json.dumps({"error": {"type": type(exc).__name__, "message": str(exc), "exit_code": exc.exit_code}})
            )
        echo(f"error: {exc}", err=True)
        raise typer.Exit(exc.exit_code) from exc


def show(result: Result, render: Callable[[Result], None], *, as_json: bool) -> None:
    """Print what a command found: as one JSON object, or as `render` does for people."""
    if as_json:
        typer.echo(escape_json(result.model_dump_json()))
    else:
        render(result)
