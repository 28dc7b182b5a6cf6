"""Environment of the tests that start real engines, and a Slurm for those that need one."""

from collections.abc import Iterator

import pytest

from infra.devcluster.cluster import DevCluster
from tests.integration.slurm_cluster import ask, require_slurm, talk_to, wait_until


@pytest.fixture
def engine_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread and no pinning: two engine threads on a loaded machine collapse to a tenth of their speed."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[DevCluster]:
    """A Slurm of three nodes, for all tests that need one."""
    yield from require_slurm()


@pytest.fixture
def cluster(running_cluster: DevCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[DevCluster]:
    """The same, talked with by this test's commands; its queue is empty before and after."""
    talk_to(running_cluster, monkeypatch)
    yield running_cluster
    for node in (node for node, word in running_cluster.status().nodes.items() if "down" in word):
        ask(running_cluster, "scontrol", "update", f"NodeName={node}", "State=RESUME")
    ask(running_cluster, "scancel", "--me", "--quiet")
    wait_until(lambda: not ask(running_cluster, "squeue", "-h"), "an empty queue")
