"""`milepost logs RUN [REPLICA]`: what the workers of a run wrote."""

from typing import Annotated

import typer

from flows.commands.errors_and_options import DEFAULT_FILEROOT, Fileroot, echo, errors_shown


def logs(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run, as `milepost runs` lists it")],
    replica: Annotated[int | None, typer.Argument(metavar="[REPLICA]", min=0, help="Replica to show in full")] = None,
    fileroot: Fileroot = DEFAULT_FILEROOT,
) -> None:
    """Show the last lines of each worker's log, or all that one replica wrote, attempt after attempt."""
    with errors_shown(as_json=False):
        from infra.fileroot.run_directory import find_run
        from infra.fileroot.run_names import complete_run_name
        from infra.files.log_files import log_tail
        from infra.text.plain_text import to_terminal_log
        from schemas.errors import StoreError

        found = find_run(fileroot, complete_run_name(fileroot, run))
        paths = found.log_paths(replica)
        if not paths:
            who = "worker" if replica is None else f"replica {replica}"
            raise StoreError(f"{found.path / 'logs'} holds no log of a {who}; the run may not have been launched")
        for path in paths:
            echo(f"== {path}")
            try:
                typer.echo(to_terminal_log(log_tail(path) if replica is None else path.read_text("utf-8", "replace")))
            except OSError as exc:
                raise StoreError(f"{path} cannot be read: {exc.strerror}; see who may with `ls -l`") from exc
