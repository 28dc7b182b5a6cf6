"""Real services for the tests that need them: engines on one thread, a Prefect server, a Slurm."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.devcluster.cluster import DevCluster
from tests.support.alert_sink import Sink
from tests.support.prefect_server import CONFIG, Served, fill_home, prefect_server, serve
from tests.support.slurm_cluster import ask, require_slurm, talk_to, wait_until


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
    spec = running_cluster.spec()
    if spec is not None and not running_cluster.status().is_up:  # a test that failed may leave it so
        running_cluster.up(spec)
    ask(running_cluster, "scancel", "--me", "--quiet")
    wait_until(lambda: not ask(running_cluster, "squeue", "-h"), "an empty queue")


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """No Prefect settings but ours, one thread per engine process."""
    home = tmp_path_factory.mktemp("prefect")
    fill_home(home)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return inherited | {
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_TASK_RUNNER_THREAD_POOL_MAX_WORKERS": "1",  # a user's own: replicas get a thread each all the same
        "DO_NOT_TRACK": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }


@pytest.fixture
def own_environment(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The same with a PREFECT_HOME of the test's own: for a Prefect server beside the shared one."""
    fill_home(tmp_path / "prefect")
    return environment | {"PREFECT_HOME": str(tmp_path / "prefect")}


@pytest.fixture(scope="session")
def api(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Prefect server for all tests of this process; each knows its runs by their fileroot."""
    with prefect_server(environment, tmp_path_factory.mktemp("server")) as server:
        yield server.api


@pytest.fixture(scope="session")
def served(engine_python: Path, demo_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A `milepost server` that evaluates the demo checkpoint with a stand-in, for all tests that need one."""
    with serve(tmp_path_factory.mktemp("served")) as server:
        server.deploy(CONFIG)
        yield server


@pytest.fixture
def sink() -> Iterator[Sink]:
    """Where alerts of this test go."""
    with Sink() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
