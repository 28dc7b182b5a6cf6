"""What a cluster offers to the replicas of a run, and what it cannot give them: said before anything is submitted."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from infra.jobs.base import Placement
from infra.slurm.client import NodeRecord, SlurmClient
from infra.slurm.script import rehearsal_script
from schemas.errors import LaunchError, SetupError, TransientError
from schemas.sections import ClusterConfig
from schemas.slurm import SlurmConfig, parse_time_limit

_WHOLE_CLUSTER: Final = ClusterConfig()
_AWAY: Final = ("down", "drain", "fail", "inval", "unknown", "maint")


class _Need(NamedTuple):
    num_replicas: int
    gpus_per_replica: int
    needs_gpus: bool


def plan_slurm_placement(
    client: SlurmClient,
    config: SlurmConfig,
    cluster: ClusterConfig = _WHOLE_CLUSTER,
    *,
    num_replicas: int,
    gpus_per_replica: int,
    needs_gpus: bool,
) -> tuple[Placement, ...]:
    """Return what each replica's job asks for, after a look at the partition and a rehearsal.

    Where the engine does not need GPUs and the partition has none, none are asked for.

    Raises:
        SetupError: Slurm is not installed or does not answer, no node takes jobs now, or Slurm would refuse a replica.
        LaunchError: the partition does not exist, its time limit is lower than the one asked for, no node of it is
            large enough for a replica, or the replicas do not fit into `cluster`.
    """
    try:
        return _plan(client, config, cluster, _Need(num_replicas, gpus_per_replica, needs_gpus))
    except TransientError as exc:
        raise SetupError(f"the cluster does not answer: {exc}; try `sinfo`, and again once it does") from exc


def _plan(client: SlurmClient, config: SlurmConfig, cluster: ClusterConfig, need: _Need) -> tuple[Placement, ...]:
    nodes, gpus_per_replica = client.nodes(), need.gpus_per_replica
    members = _members(nodes, config.partition)
    _check_time(members, config)
    if max(node.num_gpus for node in members) == 0 and not need.needs_gpus:
        gpus_per_replica = 0
    fitting = [node for node in members if node.num_gpus >= gpus_per_replica]
    if not fitting:
        most = max(node.num_gpus for node in members)
        raise LaunchError(
            f"a replica needs {gpus_per_replica} GPUs (t x p) of one node, and the nodes of partition "
            f"{members[0].partition} have at most {most}: lower t and p in rollout.backend, or choose another "
            "scheduler.slurm.partition"
        )
    _check_size(fitting, cluster, need.num_replicas, gpus_per_replica)
    num_cpus = config.cpus_per_replica or min(_share_of_cores(node, gpus_per_replica) for node in fitting)
    if num_cpus > (most := max(node.num_cpus for node in fitting)):
        raise LaunchError(
            f"scheduler.slurm.cpus_per_replica is {num_cpus}, and the nodes of partition {members[0].partition} have "
            f"at most {most} cores"
        )
    if not any(_is_there(node) for node in fitting):
        states = ", ".join(sorted({node.state for node in fitting}))
        raise SetupError(
            f"no node of partition {members[0].partition} takes jobs now ({states}): `sinfo -R` says why; choose "
            "another scheduler.slurm.partition, or wait"
        )
    placement = Placement(num_gpus=gpus_per_replica, num_cpus=num_cpus)
    client.rehearse(rehearsal_script(config, placement), all_nodes_there=all(_is_there(node) for node in members))
    return (placement,) * need.num_replicas


def _members(nodes: Sequence[NodeRecord], wanted: str | None) -> list[NodeRecord]:
    """Return the nodes of the partitions that jobs would go to."""
    names = sorted({node.partition for node in nodes})
    chosen = {node.partition for node in nodes if node.is_default} if wanted is None else set(wanted.split(","))
    if not chosen:
        raise LaunchError(
            f"scheduler.slurm.partition is not set and the cluster has no default one: set one of {', '.join(names)}"
        )
    if unknown := sorted(chosen - set(names)):
        raise LaunchError(
            f"scheduler.slurm.partition is {wanted!r} and the cluster has no partition {unknown[0]!r}; it has: "
            f"{', '.join(names) or 'none'}"
        )
    members = [node for node in nodes if node.partition in chosen]
    if not any(node.partition_is_up for node in members):
        raise SetupError(f"partition {', '.join(sorted(chosen))} takes no jobs now; it has been set down or inactive")
    return members


def _check_time(members: Sequence[NodeRecord], config: SlurmConfig) -> None:
    limits = [node.time_limit_s for node in members]
    if config.time is None or None in limits:
        return
    asked, longest = parse_time_limit(config.time), max(limit for limit in limits if limit is not None)
    if asked is None or asked > longest:
        raise LaunchError(
            f"scheduler.slurm.time is {config.time}, and partition {members[0].partition} allows at most "
            f"{longest // 3600}:{longest // 60 % 60:02d}:{longest % 60:02d}: lower it; a run that needs longer goes on "
            "with the same command"
        )


def _check_size(nodes: Sequence[NodeRecord], cluster: ClusterConfig, num_replicas: int, gpus_per_replica: int) -> None:
    """Refuse replicas that do not fit into the machines that the configuration grants, where it grants a number."""
    most = max(node.num_gpus for node in nodes)
    gpus_per_node = most if cluster.n_gpus_per_node is None else cluster.n_gpus_per_node
    if gpus_per_node > most:
        raise LaunchError(
            f"cluster.n_gpus_per_node is {gpus_per_node}, and the nodes of partition {nodes[0].partition} have at most "
            f"{most}: lower it"
        )
    if cluster.n_nodes > 1 and gpus_per_replica > gpus_per_node:
        raise LaunchError(
            f"a replica needs {gpus_per_replica} GPUs (t x p) of one node, and cluster.n_gpus_per_node grants "
            f"{gpus_per_node}: lower t and p in rollout.backend, or raise cluster.n_gpus_per_node"
        )
    fit = cluster.n_nodes * (gpus_per_node // gpus_per_replica) if gpus_per_replica else num_replicas
    if cluster.n_nodes > 1 and num_replicas > fit:
        raise LaunchError(
            f"{num_replicas} replicas of {gpus_per_replica} GPUs (t x p) do not fit into {cluster.n_nodes} nodes "
            f"(cluster.n_nodes) of {gpus_per_node} GPUs, which hold {fit}: use at most d{fit} in rollout.backend, or "
            "raise cluster.n_nodes"
        )


def _share_of_cores(node: NodeRecord, num_gpus: int) -> int:
    return max(1, node.num_cpus * num_gpus // node.num_gpus) if node.num_gpus else 1


def _is_there(node: NodeRecord) -> bool:
    return not any(word in node.state.lower() for word in _AWAY)
