"""The configuration files of a development cluster, as text: pure functions of its shape, folder and ports.

Everything lies in the cluster's own folder and listens on 127.0.0.1 alone: a Slurm that the machine belongs to is
neither read nor changed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.devcluster import DevClusterSpec

_FIRST_PORT: Final = 17_000
FIRST_PORTS: Final = range(_FIRST_PORT, 30_000, 100)
"""Below the ports that kernels lend to clients; a cluster needs fewer than a hundred."""
_JOB_IDS_PER_PORT: Final = 1000
MAIN_PARTITION: Final = "main"
"""The default one. `high` takes nodes away from the others, `low` has its jobs cancelled then even where they could be
requeued, `short` has a limit of ten minutes."""
DATABASE: Final = "slurm_acct_db"
ACCOUNT: Final = "eval"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPaths:
    """Where a cluster keeps what."""

    folder: Path
    """Folder of the cluster."""

    @property
    def state(self) -> Path:
        """File with the shape and the processes of the cluster."""
        return self.folder / "cluster.json"

    @property
    def slurm_conf(self) -> Path:
        """slurm.conf; gres.conf, cgroup.conf and slurmdbd.conf are looked for beside it."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """Socket of the cluster's own munged."""
        return self.folder / "run" / "munge.socket"

    @property
    def munge_key(self) -> Path:
        """File with munge's key."""
        return self.folder / "etc" / "munge.key"

    @property
    def database_socket(self) -> Path:
        """Socket of the cluster's own MariaDB."""
        return self.folder / "run" / "mysql.socket"

    @property
    def logs(self) -> Path:
        """Folder of one log per process."""
        return self.folder / "log"

    def device(self, node: str, gpu: int) -> Path:
        """Return the device file of a pretend GPU."""
        return self.folder / "dev" / f"{node}-gpu{gpu}"


def node_names(spec: DevClusterSpec) -> list[str]:
    """Return n1, n2, …"""
    return [f"n{number}" for number in range(1, spec.num_nodes + 1)]


def slurm_conf(spec: DevClusterSpec, paths: ClusterPaths, *, first_port: int, host: str, with_cgroups: bool) -> str:
    """Return slurm.conf. `host` is this machine's short name: slurmctld refuses to start under another.

    Without cgroups a job above its memory limit ends FAILED by signal 9 instead of OUT_OF_MEMORY.
    """
    folder = paths.folder
    memory_per_cpu = max(1, spec.memory_per_node_mib // spec.cpus_per_node)
    lines = [
        "ClusterName=milepost",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={first_port}",
        # control groups are named for node and job, whatever the cluster: two clusters must not have the same ones
        f"FirstJobId={(first_port - _FIRST_PORT) * _JOB_IDS_PER_PORT + 1}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        # a requeued job restarts after 8 s instead of 2 min
        f"AuthInfo=socket={paths.munge_socket},cred_expire=5",
        "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool.%n",
        f"SlurmctldPidFile={folder}/run/slurmctld.pid",
        f"SlurmdPidFile={folder}/run/slurmd.%n.pid",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "ProctrackType=" + ("proctrack/cgroup" if with_cgroups else "proctrack/linuxproc"),
        "TaskPlugin=" + ("task/cgroup" if with_cgroups else "task/none"),
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=1",
        "JobAcctGatherParams=UsePss" + ("" if with_cgroups else ",OverMemoryKill"),
        "ReturnToService=2",
        # nodes may declare more cores and memory than the machine has
        "SlurmdParameters=config_overrides",
        "SlurmctldTimeout=30",
        "SlurmdTimeout=10",
        "KillWait=3",
        "MinJobAge=300",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=10000,bf_interval=2",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "GresTypes=gpu",
        f"DefMemPerCPU={memory_per_cpu}",
        "MaxArraySize=2001",
        "MaxJobCount=20000",
        *_accounting(spec, paths, first_port),
    ]
    lines += [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={first_port + 1 + number} "
        f"CPUs={spec.cpus_per_node} RealMemory={spec.memory_per_node_mib}"
        + (f" Gres=gpu:{spec.gpus_per_node}" if spec.gpus_per_node else "")
        + " State=UNKNOWN"
        for number, node in enumerate(node_names(spec), start=1)
    ]
    lines += [
        f"PartitionName={MAIN_PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE",
        "PartitionName=low Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=CANCEL",
        "PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF",
        "PartitionName=short Nodes=ALL MaxTime=10 PriorityTier=1 PreemptMode=REQUEUE",
    ]
    return "\n".join(lines) + "\n"


def _accounting(spec: DevClusterSpec, paths: ClusterPaths, first_port: int) -> list[str]:
    if not spec.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={first_port + 1}",
        f"AccountingStoragePass={paths.munge_socket}",  # Slurm's way to name the socket for slurmdbd
        "AccountingStorageEnforce=associations,limits,qos",  # as where users are charged
        "AccountingStorageTRES=gres/gpu",
        "AccountingStoreFlags=job_comment",
    ]


def gres_conf(spec: DevClusterSpec, paths: ClusterPaths) -> str:
    """Return gres.conf: a GPU without a device file is refused."""
    lines = [
        f"NodeName={node} Name=gpu File={paths.device(node, gpu)}"
        for node in node_names(spec)
        for gpu in range(spec.gpus_per_node)
    ]
    return "".join(f"{line}\n" for line in lines)


def cgroup_conf(*, with_cgroups: bool) -> str:
    """Return cgroup.conf: version 1 with a true limit on memory. Version 2 needs a systemd that lends its tree."""
    if not with_cgroups:
        return "CgroupAutomount=no\n"
    return "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\nAllowedRAMSpace=100\n"


def slurmdbd_conf(paths: ClusterPaths, *, first_port: int) -> str:
    """Return slurmdbd.conf; its owner must be the only one who may read it."""
    return (
        "AuthType=auth/munge\n"
        f"AuthInfo=socket={paths.munge_socket}\n"
        "CommunicationParameters=NoInAddrAny\n"
        "DbdHost=localhost\n"
        "DbdAddr=127.0.0.1\n"
        f"DbdPort={first_port + 1}\n"
        "SlurmUser=root\n"
        f"PidFile={paths.folder}/run/slurmdbd.pid\n"
        "StorageType=accounting_storage/mysql\n"
        "StorageHost=localhost\n"
        f"StorageLoc={DATABASE}\n"
        "StorageUser=root\n"
    )
