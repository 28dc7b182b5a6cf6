"""What a cluster cannot give is refused before anything is submitted, with what it has."""

import pytest

from infra.slurm.client import NodeRecord
from infra.slurm.cluster import plan_slurm_placement
from schemas.errors import LaunchError, SetupError, TransientError
from schemas.sections import ClusterConfig
from schemas.slurm import SlurmConfig
from tests.support.scripted_slurm import ScriptedSlurm


def node(name: str, partition: str = "gpu", **changes: object) -> NodeRecord:
    fields = {
        "node": name,
        "partition": partition,
        "is_default": partition == "gpu",
        "partition_is_up": True,
        "time_limit_s": None,
        "num_cpus": 64,
        "num_gpus": 8,
        "state": "idle",
    }
    return NodeRecord(**(fields | changes))  # type: ignore[arg-type]


class ListedCluster(ScriptedSlurm):
    """A client of a cluster of which only the nodes are known, and what it would refuse."""

    def __init__(self, *nodes: NodeRecord, refusal: str = "") -> None:
        super().__init__()
        self._nodes = list(nodes)
        self._refusal = refusal
        self.rehearsed: list[tuple[str, bool]] = []

    def rehearse(self, script: str, *, all_nodes_there: bool) -> None:
        self.rehearsed.append((script, all_nodes_there))
        if self._refusal:
            raise SetupError(self._refusal)

    def nodes(self) -> list[NodeRecord]:
        if not self._nodes:
            raise TransientError("sinfo: Slurm does not answer")
        return self._nodes


CLUSTER = ListedCluster(
    node("n1"),
    node("n2", num_cpus=32),
    node("n3", "short", time_limit_s=600),
    node("c1", "cpu", num_gpus=0, num_cpus=16),
    node("d1", "away", state="drained*"),
    node("d2", "closed", partition_is_up=False),
)


def plan(config: SlurmConfig, *, replicas: int = 2, gpus: int = 1, needs_gpus: bool = True) -> tuple[int, int, int]:
    placements = plan_slurm_placement(
        CLUSTER, config, num_replicas=replicas, gpus_per_replica=gpus, needs_gpus=needs_gpus
    )
    return len(placements), placements[0].num_gpus, placements[0].num_cpus


def test_a_replica_gets_the_cores_that_go_with_its_gpus_on_every_node() -> None:
    assert plan(SlurmConfig(), gpus=2) == (2, 2, 8)
    assert plan(SlurmConfig(cpus_per_replica=3), gpus=2) == (2, 2, 3)


def test_a_cpu_engine_on_a_partition_without_gpus_asks_for_none() -> None:
    assert plan(SlurmConfig(partition="cpu"), needs_gpus=False) == (2, 0, 1)
    assert plan(SlurmConfig(partition="gpu"), needs_gpus=False) == (2, 1, 4)


@pytest.mark.parametrize(
    ("config", "gpus", "error", "words"),
    [
        (SlurmConfig(partition="gpuu"), 1, LaunchError, r"gpuu.*it has: away, closed, cpu, gpu, short"),
        (SlurmConfig(), 9, LaunchError, r"needs 9 GPUs.*at most 8.*lower t and p"),
        (SlurmConfig(partition="cpu"), 1, LaunchError, r"at most 0"),
        (SlurmConfig(partition="short", time="11"), 1, LaunchError, r"time is 11.*at most 0:10:00"),
        (SlurmConfig(partition="short", time="UNLIMITED"), 1, LaunchError, r"at most 0:10:00"),
        (SlurmConfig(partition="away"), 1, SetupError, r"drained\*.*sinfo -R"),
        (SlurmConfig(partition="closed"), 1, SetupError, r"closed takes no jobs"),
        (SlurmConfig(cpus_per_replica=65), 1, LaunchError, r"65.*at most 64 cores"),
    ],
)
def test_what_the_cluster_cannot_give_is_refused(
    config: SlurmConfig, gpus: int, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        plan(config, gpus=gpus)


@pytest.mark.parametrize(
    ("cluster", "replicas", "gpus", "words"),
    [
        (
            ClusterConfig(n_nodes=2),
            17,
            1,
            r"17 replicas of 1 GPUs .* 2 nodes .* of 8 GPUs, which hold 16: use at most d16",
        ),
        (ClusterConfig(n_nodes=3), 4, 5, r"which hold 3"),
        (ClusterConfig(n_nodes=2, n_gpus_per_node=4), 9, 1, r"of 4 GPUs, which hold 8"),
        (ClusterConfig(n_nodes=2, n_gpus_per_node=2), 2, 4, r"needs 4 GPUs .* grants 2: lower t and p .* or raise"),
        (ClusterConfig(n_gpus_per_node=9), 1, 1, r"cluster.n_gpus_per_node is 9.*at most 8"),
    ],
)
def test_replicas_that_the_granted_machines_cannot_hold_are_refused(
    cluster: ClusterConfig, replicas: int, gpus: int, words: str
) -> None:
    with pytest.raises(LaunchError, match=words):
        plan_slurm_placement(
            CLUSTER, SlurmConfig(), cluster, num_replicas=replicas, gpus_per_replica=gpus, needs_gpus=True
        )


def test_replicas_that_fit_are_taken_and_without_a_number_of_machines_they_may_wait() -> None:
    for cluster, replicas in ((ClusterConfig(n_nodes=12), 96), (ClusterConfig(), 96)):
        assert (
            len(
                plan_slurm_placement(
                    CLUSTER, SlurmConfig(), cluster, num_replicas=replicas, gpus_per_replica=1, needs_gpus=True
                )
            )
            == 96
        )


def test_what_slurm_would_refuse_is_refused_before_anything_is_made() -> None:
    config = SlurmConfig(account="a b", extra=("--exclusive",))
    cluster = ListedCluster(node("n1"), node("n2", state="drained"), refusal="Invalid account")
    with pytest.raises(SetupError, match="Invalid account"):
        plan_slurm_placement(cluster, config, num_replicas=1, gpus_per_replica=2, needs_gpus=True)
    ((script, all_nodes_there),) = cluster.rehearsed
    assert not all_nodes_there
    assert {'#SBATCH --account="a b"', '#SBATCH --gres="gpu:2"', "#SBATCH --exclusive"} <= set(script.splitlines())


def test_a_limit_within_the_partitions_is_taken() -> None:
    assert plan(SlurmConfig(partition="short", time="10"))[0] == 2


def test_a_cluster_without_a_default_partition_asks_for_one() -> None:
    cluster = ListedCluster(node("n1", is_default=False))
    with pytest.raises(LaunchError, match=r"no default one: set one of gpu"):
        plan_slurm_placement(cluster, SlurmConfig(), num_replicas=1, gpus_per_replica=1, needs_gpus=True)


def test_a_cluster_that_is_down_is_a_setup_error() -> None:
    with pytest.raises(SetupError, match=r"does not answer.*sinfo"):
        plan_slurm_placement(ListedCluster(), SlurmConfig(), num_replicas=1, gpus_per_replica=1, needs_gpus=True)
