"""`milepost view`: the report over the whole store in a browser, with all samples, while evaluations run."""

import secrets
import socket
from typing import Annotated

import typer

from flows.commands.errors_and_options import DEFAULT_FILEROOT, Fileroot, echo, errors_shown
from flows.commands.steps import Steps

viewing = typer.Typer()


@viewing.command()
def view(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN|EXPERIMENT", help="What to show; all if not given"),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: any free one")] = 8765,
    fileroot: Fileroot = DEFAULT_FILEROOT,
) -> None:
    """Show curves, changes and all samples in a browser, until Ctrl-C. Only this machine, and only with the token."""
    with errors_shown(as_json=False), Steps() as steps:
        steps.show("reading the store and drawing")
        import uvicorn

        from flows.viewer import Viewer, make_app
        from infra.store import open_store

        viewer = Viewer(open_store(fileroot), tuple(names or ()))
        viewer.page()
        with _bind(port) as listening:
            address = f"127.0.0.1:{listening.getsockname()[1]}"
            token = secrets.token_urlsafe(24)
            steps.stop()
            echo(f"open     http://{address}/?token={token}")
            echo("Ctrl-C ends it; on a remote machine, forward the port: ssh -L PORT:127.0.0.1:PORT HOST")
            app = make_app(viewer, address=address, token=token)
            config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
            uvicorn.Server(config).run(sockets=[listening])


def _bind(port: int) -> socket.socket:
    """Return a socket on loopback.

    Raises:
        ConfigError: the port is taken.
    """
    from schemas.errors import ConfigError

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen()  # who opens the address at once waits for the server, rather than being turned away
    except OSError as exc:
        listening.close()
        raise ConfigError(f"port {port} is taken ({exc.strerror}); choose another with --port, or 0 for any") from exc
    return listening
