"""A real Slurm for tests: three nodes of two pretend GPUs, with accounting."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.devcluster.cluster import DevCluster
from infra.devcluster.preparation import check_machine
from infra.machine import available_memory_bytes
from schemas.devcluster import DevClusterSpec
from schemas.errors import SetupError

PATIENCE_S = 120.0


def require_slurm(*, num_nodes: int = 3, gpus_per_node: int = 2) -> Iterator[DevCluster]:
    """Bring a cluster up for as long as the caller needs it; skip where that is impossible."""
    spec = DevClusterSpec(
        num_nodes=num_nodes,
        gpus_per_node=gpus_per_node,
        memory_per_node_mib=available_memory_bytes() >> 20,
        accounting=True,
    )
    folder = Path(tempfile.mkdtemp(prefix="milepost-slurm-"))
    try:
        check_machine(folder, spec)
    except SetupError as exc:
        folder.rmdir()
        pytest.skip(f"no Slurm here: {exc}")
    folder.rmdir()
    cluster = DevCluster(folder)
    try:
        cluster.up(spec)
        yield cluster
    finally:
        cluster.down()


def ask(cluster: DevCluster, *command: str) -> str:
    """What one of Slurm's commands says."""
    return subprocess.run(command, env=cluster.environment(), capture_output=True, text=True, check=True).stdout


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.1)


def talk_to(cluster: DevCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process's commands talk with the cluster, and only that."""
    for name in [name for name in os.environ if name.startswith(("SLURM", "SBATCH", "SRUN"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", str(cluster.paths.slurm_conf))
