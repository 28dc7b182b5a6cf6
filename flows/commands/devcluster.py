"""`milepost devcluster up|down|status`: a real Slurm on this machine, to try the Slurm path out."""

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flows.commands.errors_and_options import AsJson, errors_shown, show

if TYPE_CHECKING:
    from schemas.devcluster import DevClusterStatus

devcluster = typer.Typer(
    name="devcluster",
    help="A real Slurm on this machine, for try-outs and tests (docs/slurm.md).",
    no_args_is_help=True,
)


def _state_folder() -> Path:
    """The folder for state of the user's own; /var/lib where that is closed to others: munge takes no socket there."""
    own = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    are_open = (folder.stat().st_mode & stat.S_IXOTH for folder in (own, *own.parents) if folder.exists())
    return own if all(are_open) else Path("/var/lib")


_DEFAULT_FOLDER: Final = _state_folder() / "milepost" / "devcluster"

Folder = Annotated[Path, typer.Option(help="Folder of the cluster's state")]


@devcluster.command()
def up(
    folder: Folder = _DEFAULT_FOLDER,
    nodes: Annotated[int, typer.Option(min=1, max=64, help="Nodes, each a slurmd of its own")] = 3,
    gpus_per_node: Annotated[int, typer.Option(min=0, max=16, help="Pretend GPUs of each node")] = 2,
    cpus_per_node: Annotated[int, typer.Option(min=1, max=1024, help="Cores that each node declares")] = 4,
    accounting: Annotated[bool, typer.Option("--accounting", help="With MariaDB and slurmdbd: sacct answers")] = False,
    as_json: AsJson = False,
) -> None:
    """Start what does not run yet and wait until every node takes jobs. Root only."""
    with errors_shown(as_json=as_json):
        from infra.devcluster.cluster import DevCluster
        from infra.devcluster.preparation import node_memory_mib
        from infra.machine.resources import available_memory_bytes
        from schemas.devcluster import DevClusterSpec

        cluster = DevCluster(folder)
        known = cluster.spec()
        memory_mib = node_memory_mib(available_memory_bytes()) if known is None else known.memory_per_node_mib
        spec = DevClusterSpec(
            num_nodes=nodes,
            gpus_per_node=gpus_per_node,
            cpus_per_node=cpus_per_node,
            memory_per_node_mib=memory_mib,
            accounting=accounting,
        )
        show(cluster.up(spec), _print_status, as_json=as_json)


@devcluster.command()
def status(folder: Folder = _DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Say how the cluster is. Exit code 1 when it does not take jobs."""
    with errors_shown(as_json=as_json):
        from infra.devcluster.cluster import DevCluster

        found = DevCluster(folder).status()
        show(found, _print_status, as_json=as_json)
    if not found.is_up:
        raise typer.Exit(1)


@devcluster.command()
def stop(
    daemon: Annotated[str, typer.Argument(help="munged, mysqld, slurmdbd, slurmctld, slurmd-n1, slurmd-n2, …")],
    folder: Folder = _DEFAULT_FOLDER,
    kill: Annotated[bool, typer.Option("--kill", help="By SIGKILL, as in a crash")] = False,
    as_json: AsJson = False,
) -> None:
    """End one process of the cluster, to see what its failure does; `up` starts it again."""
    with errors_shown(as_json=as_json):
        from infra.devcluster.cluster import DevCluster

        show(DevCluster(folder).stop(daemon, by_force=kill), _print_status, as_json=as_json)


@devcluster.command()
def down(folder: Folder = _DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Cancel all jobs, end the cluster's processes, and remove its folder."""
    with errors_shown(as_json=as_json):
        from infra.devcluster.cluster import DevCluster

        cluster = DevCluster(folder)
        cluster.down()
        show(cluster.status(), _print_status, as_json=as_json)


def _print_status(status: "DevClusterStatus") -> None:
    if not status.nodes and not status.missing_daemons:
        typer.echo(f"no cluster in {status.folder}")
        _print_foreign(status)
        return
    typer.echo(" ".join(f"{node}:{word}" for node, word in status.nodes.items()) or "no node answers")
    if status.missing_daemons:
        typer.echo(f"not running: {', '.join(status.missing_daemons)}; `milepost devcluster up` starts them")
    _print_foreign(status)
    limit = (
        "ends OUT_OF_MEMORY" if status.limits_memory else "is not always noticed: no control groups of version 1 here"
    )
    typer.echo(f"a job above its memory {limit}")
    if status.is_up:
        typer.echo(f"export SLURM_CONF={status.slurm_conf}")


def _print_foreign(status: "DevClusterStatus") -> None:
    if status.foreign_daemons:
        typer.echo(f"not of this cluster and left alone: {', '.join(status.foreign_daemons)}")
