"""What a development cluster is made of, and which of its processes run."""

from pathlib import Path
from typing import Final

from pydantic import Field

from schemas.base import Model
from schemas.processes import ProcessIdentity

LEAST_NODE_MEMORY_MIB: Final = 256
"""Of each node: slurmd and a job that does nothing fit."""


class DevClusterSpec(Model):
    """The shape of the cluster; kept in its folder, so that `up` again can tell whether the same one is meant."""

    num_nodes: int = Field(default=3, ge=1, le=64)
    """Nodes, named n1, n2, …; each is one slurmd on this machine."""
    gpus_per_node: int = Field(default=2, ge=0, le=16)
    """Pretend GPUs of each node: device files without a device behind them."""
    cpus_per_node: int = Field(default=4, ge=1, le=1024)
    """CPU cores that each node declares; they may be more than the machine has."""
    memory_per_node_mib: int = Field(ge=LEAST_NODE_MEMORY_MIB)
    """Memory that each node declares, in MiB; the nodes share what the machine has."""
    accounting: bool = False
    """Whether MariaDB and slurmdbd run, so that `sacct` answers."""


class DevClusterDaemon(Model):
    """One process of the cluster, as it was started."""

    name: str
    """munged, mysqld, slurmdbd, slurmctld, or slurmd-n1, slurmd-n2, …"""
    process: ProcessIdentity
    """The very process."""


class DevClusterState(Model):
    """cluster.json in the cluster's folder."""

    spec: DevClusterSpec
    """Nodes, GPUs and memory of the cluster."""
    first_port: int
    """slurmctld's port on 127.0.0.1; slurmdbd and the nodes have the next ones."""
    daemons: tuple[DevClusterDaemon, ...] = ()
    """What was started, in that order."""


class DevClusterStatus(Model):
    """How a cluster is."""

    folder: Path
    """Folder of the cluster, which holds its state."""
    slurm_conf: Path
    """What SLURM_CONF must name for Slurm's commands to talk with it."""
    is_up: bool
    """Whether all of its processes run and all of its nodes take jobs."""
    nodes: dict[str, str] = Field(default_factory=dict[str, str])
    """State by node, in Slurm's words; empty when the cluster does not answer."""
    missing_daemons: tuple[str, ...] = ()
    """Processes that should run and do not."""
    limits_memory: bool = False
    """Whether a job above its memory ends OUT_OF_MEMORY; without, it ends FAILED by signal 9, or not at all."""
    foreign_daemons: tuple[str, ...] = ()
    """Processes of another Slurm on this machine, such as `munged (pid 71)`; they are left alone."""
