"""A real Slurm for tests: three nodes of two pretend GPUs, with accounting."""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.devcluster.cluster import DevCluster
from infra.devcluster.preparation import check_machine
from infra.machine.resources import available_memory_bytes
from schemas.devcluster import DevClusterSpec
from schemas.errors import SetupError

PATIENCE_S = 300.0


def require_slurm(*, num_nodes: int = 3, gpus_per_node: int = 2) -> Iterator[DevCluster]:
    """Bring a cluster up for as long as the caller needs it; skip where that is impossible."""
    spec = DevClusterSpec(
        num_nodes=num_nodes,
        gpus_per_node=gpus_per_node,
        memory_per_node_mib=max(available_memory_bytes() >> 20, 8 << 10),  # others hold some for the moment
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
    """What one of Slurm's commands says; asked again where slurmctld was too busy to answer."""
    for patience in reversed(range(5)):
        done = subprocess.run(command, env=cluster.environment(), capture_output=True, text=True, check=False)
        if not done.returncode or not patience or not re.search("timed out|unable to contact", done.stderr, re.I):
            break
    assert not done.returncode, (command, done.stderr)
    return done.stdout


def slurmctld_of(cluster: DevCluster) -> psutil.Process:
    """Its daemon that is asked."""
    configuration = str(cluster.paths.slurm_conf)
    return next(
        process
        for process in psutil.process_iter(["name", "environ"])
        if process.info["name"] == "slurmctld" and (process.info["environ"] or {}).get("SLURM_CONF") == configuration
    )


def wait_until(condition: Callable[[], bool], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what}"
        time.sleep(0.1)


def talk_to(cluster: DevCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process's commands talk with the cluster, and only that."""
    for name in [name for name in os.environ if name.startswith(("SLURM", "SBATCH", "SRUN"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", str(cluster.paths.slurm_conf))
