"""The Prefect server and the Slurm cluster that a benchmark's commands use, for as long as it runs."""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from flows.orchestration.local_server import LocalServer
from infra.devcluster.cluster import DevCluster
from infra.jobs.environment import clean_environment
from infra.machine.resources import available_memory_bytes
from schemas.devcluster import DevClusterSpec


def end_on_signals() -> None:
    """Let SIGTERM end this process as an exception does: no server, cluster or mounted disk stays behind.

    And SIGINT, which a shell has ignored by what it starts in the background: commands would inherit that, and no
    Ctrl-C would reach them.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def prefect_server(folder: Path) -> Generator[dict[str, str]]:
    """Yield the environment of commands that share one Prefect server, which keeps its files in `folder`."""
    os.environ["PREFECT_HOME"] = str(folder)
    with LocalServer(folder) as server:
        access = {"PREFECT_API_URL": server.wait_ready(), "PREFECT_API_AUTH_STRING": server.login}
        ours = {"PREFECT_HOME": str(folder), "CUDA_VISIBLE_DEVICES": "", **access}
        yield clean_environment(os.environ) | ours


@contextmanager
def slurm_cluster(folder: Path, *, num_nodes: int = 3, gpus_per_node: int = 2) -> Generator[DevCluster]:
    """Yield a cluster with accounting that is taken down afterwards; `folder` need not exist. Root only.

    Its parent is opened to all: munge takes no socket below a folder as `tempfile` makes it.
    """
    folder.parent.chmod(0o755)
    cluster = DevCluster(folder)
    spec = DevClusterSpec(
        num_nodes=num_nodes,
        gpus_per_node=gpus_per_node,
        cpus_per_node=max(4, gpus_per_node),
        memory_per_node_mib=available_memory_bytes() >> 20,
        accounting=True,
    )
    try:
        cluster.up(spec)
        yield cluster
    finally:
        cluster.down()
