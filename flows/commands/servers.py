"""`milepost deploy` and `milepost server`: what evaluations by a Prefect server need."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.errors_and_options import AsJson, echo, errors_shown, set_prefect_defaults, show
from flows.commands.steps import Steps
from flows.orchestration.server_access import load_prefect, reach_loopback_directly

if TYPE_CHECKING:
    from schemas.deployment import DeployReport


def deploy(  # noqa: PLR0913 - each is an option of the command
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CONFIG]", help="What the deployments evaluate, and who is alerted; as before without one"
        ),
    ] = None,
    pool: Annotated[
        str | None, typer.Option(metavar="NAME", help="Work pool that runs the evaluations; at first milepost")
    ] = None,
    work_pool_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Its type, such as kubernetes; of a new one, process")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder of checkpoints that `reconcile` looks through every five minutes")
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Evaluations at once, over all deployments; at first 1")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, max=1_000_000, help="GPUs that all evaluations take together; 0 for no limit")
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Name of these deployments, beside those of other configurations")
    ] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Let CONFIG take the place of another experiment's configuration")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Register deployments, triggers and alerts with the server at PREFECT_API_URL. A second time changes nothing."""
    with errors_shown(as_json=as_json), Steps() as steps:
        steps.show("reading the configuration")
        from schemas.config import check_launchable, load_config

        loaded = None if config is None else load_config(config)
        if loaded is not None:
            check_launchable(loaded)
        set_prefect_defaults()
        steps.show("asking the Prefect server")
        load_prefect()
        from flows.orchestration.prefect_answers import require_server

        require_server()
        steps.show("registering deployments")
        from flows.orchestration.deployments import Wanted, deploy, read_deployments

        wanted = Wanted(
            config=loaded,
            root=root,
            gpus=gpus,
            pool=pool,
            pool_type=work_pool_type,
            at_once=at_once,
            name=name,
            replaces=replace,
        )
        report = deploy(read_deployments(), wanted)
        steps.stop()
        show(report, _print_report, as_json=as_json)


def server(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on the loopback address")] = 4200,
    pool: Annotated[
        str, typer.Option(metavar="NAME", help="Work pool that the worker serves, as `milepost deploy --pool` names it")
    ] = "milepost",
    login: Annotated[
        bool, typer.Option("--login", help="Print the login that a browser is asked for, and start nothing")
    ] = False,
) -> None:
    """Run a Prefect server and a worker for one person until Ctrl-C; both end with it."""
    with errors_shown(as_json=False), Steps(are_shown=not login) as steps:
        steps.show("starting: 10 to 30 seconds")
        reach_loopback_directly()
        load_prefect()
        from flows.orchestration.server import print_login, serve

        if login:
            print_login()
            return
        raise typer.Exit(serve(port, pool, when_ready=steps.stop))


def _print_report(report: "DeployReport") -> None:
    for each in report.registrations:
        echo(f"{each.change:<10} {each.kind:<13} {each.name}  {each.id}")
    echo(f"at {report.api_url}")
