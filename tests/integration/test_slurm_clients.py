"""The contract of both ways of talking with Slurm, on a real one: what is submitted is seen and ended alike."""

import importlib.util
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.devcluster.cluster import DevCluster
from infra.slurm.cli import CliClient
from infra.slurm.client import JobRecord, SlurmClient
from infra.slurm.pyslurm_client import PyslurmClient
from infra.slurm.selection import select_client
from schemas.errors import SetupError, TransientError
from schemas.slurm import SlurmJobState
from tests.support.slurm_cluster import ask, slurmctld_of, wait_until

S = SlurmJobState
NAME = "milepost-contract"


@pytest.fixture(
    params=[
        pytest.param("cli", marks=pytest.mark.needs_slurm),
        # no release of pyslurm for the Slurm that CI has is in a package index
        pytest.param("pyslurm", marks=pytest.mark.needs_pyslurm),
    ]
)
def client(request: pytest.FixtureRequest, cluster: DevCluster) -> Iterator[SlurmClient]:
    if request.param == "cli":
        yield CliClient()
        return
    yield from pyslurm_client()


def pyslurm_client() -> Iterator[PyslurmClient]:
    if importlib.util.find_spec("pyslurm") is None:
        pytest.skip("pyslurm is not installed")
    client = PyslurmClient(CliClient())
    try:
        client.check()
    except SetupError as exc:
        client.close()
        pytest.skip(str(exc))
    yield client
    client.close()


class Submitter:
    """Submits arrays of one shell command."""

    def __init__(self, client: SlurmClient, folder: Path) -> None:
        self._client = client
        self._folder = folder

    def submit(self, command: str, *options: str, array: str = "0-1", name: str = NAME) -> str:
        script = self._folder / "job.sh"
        script.write_text(f"#!/bin/bash\n{command}\n")
        words = [f"--job-name={name}", f"--array={array}", "--output=/dev/null", "--chdir=/", "--no-requeue", *options]
        return self._client.submit(script, words, {"PATH": os.environ["PATH"], "SLURM_CONF": os.environ["SLURM_CONF"]})

    def records(self, name: str = NAME) -> dict[str, JobRecord]:
        return {record.job_id: record for record in self._client.jobs(name)}

    def wait_for(self, state: SlurmJobState, *jobs: str) -> None:
        wait_until(lambda: {self.records()[job].state for job in jobs} == {state}, f"{jobs} to be {state}")


@pytest.fixture
def jobs(client: SlurmClient, tmp_path: Path) -> Submitter:
    return Submitter(client, tmp_path)


def own(jobs: Submitter, array: str) -> dict[str, JobRecord]:
    return {job: record for job, record in jobs.records().items() if job.partition("_")[0] == array}


def test_each_element_is_seen_from_its_start_to_its_end(jobs: Submitter, client: SlurmClient, tmp_path: Path) -> None:
    command = f"until test -e '{tmp_path}/go'; do sleep 0.1; done; exit $((SLURM_ARRAY_TASK_ID * 7))"
    array = jobs.submit(command, '--comment=it is | "mine"')
    names = [f"{array}_0", f"{array}_1"]
    assert sorted(own(jobs, array)) == names
    jobs.wait_for(S.RUNNING, *names)
    running = jobs.records()[names[0]]
    assert (running.comment, running.node[0]) == ('it is | "mine"', "n")
    (tmp_path / "go").touch()
    wait_until(lambda: all(jobs.records()[name].state.is_terminal for name in names), "the end")
    assert [jobs.records()[name].state for name in names] == [S.COMPLETED, S.FAILED]
    ends = [client.end_of(name) for name in names]
    assert [(end.job.state, end.job.exit_code, end.node[0]) for end in ends if end is not None] == [
        (S.COMPLETED, 0, "n"),
        (S.FAILED, 7, "n"),
    ]


def test_an_exit_code_that_stands_for_a_signal_is_told_whole(jobs: Submitter, client: SlurmClient) -> None:
    array = jobs.submit("exit 137", array="0-0")
    wait_until(lambda: all(record.state.is_terminal for record in own(jobs, array).values()), "the end")
    (job,) = own(jobs, array)
    end = client.end_of(job)
    assert end is not None
    assert (end.job.state, end.job.exit_code) == (S.FAILED, 137)


def test_elements_that_wait_are_seen_one_by_one(jobs: Submitter) -> None:
    array = jobs.submit("sleep 100", "--hold", array="0-99")
    assert {(record.state, record.reason, record.node) for record in own(jobs, array).values()} == {
        (S.PENDING, "JobHeldUser", "")
    }
    assert set(own(jobs, array)) == {f"{array}_{element}" for element in range(100)}


def test_a_torn_array_is_seen_whole(jobs: Submitter, client: SlurmClient) -> None:
    array = jobs.submit("sleep 100", "--hold", array="0-199")
    gone = [f"{array}_{element}" for element in range(0, 200, 3)]
    client.cancel(gone)
    left = {f"{array}_{element}" for element in range(200)} - set(gone)
    wait_until(lambda: {job for job, each in own(jobs, array).items() if each.state is S.PENDING} == left, "the rest")


def test_an_array_of_one_is_seen_by_its_element_once_it_runs(jobs: Submitter) -> None:
    array = jobs.submit("sleep 100", array="0-0")
    jobs.wait_for(S.RUNNING, f"{array}_0")


def test_an_array_cancelled_while_it_waits_leaves_at_most_a_record_of_its_own(
    jobs: Submitter, client: SlurmClient
) -> None:
    array = jobs.submit("sleep 100", "--hold")
    client.cancel([f"{array}_0", f"{array}_1"])
    wait_until(lambda: all(record.state is S.CANCELLED for record in own(jobs, array).values()), "the end")
    assert set(own(jobs, array)) <= {array, f"{array}_0", f"{array}_1"}


def test_a_running_element_is_cancelled_alone(jobs: Submitter, client: SlurmClient) -> None:
    array = jobs.submit("sleep 100")
    jobs.wait_for(S.RUNNING, f"{array}_0", f"{array}_1")
    client.cancel([f"{array}_1"])
    jobs.wait_for(S.CANCELLED, f"{array}_1")
    assert jobs.records()[f"{array}_0"].state is S.RUNNING
    client.cancel([f"{array}_0", f"{array}_1"])  # one is over
    jobs.wait_for(S.CANCELLED, f"{array}_0")


def test_only_jobs_of_that_name_are_seen(jobs: Submitter) -> None:
    array = jobs.submit("sleep 100", name="other")
    assert f"{array}_0" not in jobs.records()
    assert f"{array}_0" in jobs.records("other")
    assert jobs.records("no such name") == {}


def test_an_excluded_node_has_no_job(jobs: Submitter) -> None:
    array = jobs.submit("sleep 100", "--exclude=n1,n3", array="0-2")
    names = [f"{array}_{element}" for element in range(3)]
    jobs.wait_for(S.RUNNING, *names)
    assert {jobs.records()[name].node for name in names} == {"n2"}


def test_a_job_that_nobody_knows_has_no_end(client: SlurmClient) -> None:
    assert client.end_of("999999_0") is None


def test_nodes_are_listed_per_partition(client: SlurmClient) -> None:
    found = {(node.node, node.partition): node for node in client.nodes()}
    assert len(found) == 3 * 4
    assert found["n1", "main"].is_default
    assert found["n1", "short"].time_limit_s == 600
    assert found["n2", "high"].num_gpus == 2


def test_what_slurm_refuses_is_a_setup_error(jobs: Submitter) -> None:
    with pytest.raises(SetupError, match=r"scheduler\.slurm\.partition"):
        jobs.submit("true", "--partition=absent")


@pytest.mark.parametrize(
    ("directive", "words"),
    [
        ("--partition=absent", r"scheduler\.slurm\.partition"),
        ("--account=absent", r"scheduler\.slurm\.account"),
        ("--qos=absent", r"scheduler\.slurm\.qos"),
        ("--reservation=absent", r"scheduler\.slurm\.reservation"),
        ("--constraint=absent", r"scheduler\.slurm\.constraint"),
        ("--mem=900T", r"scheduler\.slurm\.memory"),
        ("--gres=gpu:3", r"rollout\.backend"),
        ("--exclude=absent", r"scheduler\.slurm\.exclude_nodes"),
        ("--no-such-option", r"no-such-option.*scheduler\.slurm\.extra"),
    ],
)
def test_a_rehearsal_tells_what_would_be_refused_and_submits_nothing(
    client: SlurmClient, directive: str, words: str
) -> None:
    client.rehearse("#!/bin/bash\n#SBATCH --job-name=milepost-rehearsal\n", all_nodes_there=True)
    with pytest.raises(SetupError, match=words):
        client.rehearse(f"#!/bin/bash\n#SBATCH {directive}\n", all_nodes_there=True)
    assert client.jobs("milepost-rehearsal") == []


def test_what_a_drained_node_could_give_is_no_refusal(client: SlurmClient, cluster: DevCluster) -> None:
    spec = cluster.spec()
    assert spec is not None
    ask(cluster, "scontrol", "update", "NodeName=n[1-3]", "State=DRAIN", "Reason=test")
    client.rehearse("#!/bin/bash\n", all_nodes_there=False)
    with pytest.raises(SetupError, match=r"scheduler\.slurm\.constraint"):
        client.rehearse("#!/bin/bash\n#SBATCH --constraint=absent\n", all_nodes_there=False)
    cluster.up(spec)


def test_a_slurmctld_that_is_away_is_no_answer(jobs: Submitter, client: SlurmClient, cluster: DevCluster) -> None:
    spec = cluster.spec()
    assert spec is not None
    array = jobs.submit("sleep 100")
    cluster.stop("slurmctld", by_force=False)
    looks: tuple[Callable[[], object], ...] = (
        lambda: client.jobs(NAME),
        lambda: client.cancel([array]),
        lambda: jobs.submit("true"),
        lambda: client.rehearse("#!/bin/bash\n", all_nodes_there=True),
    )
    for look in looks:
        with pytest.raises(TransientError):
            look()
    cluster.up(spec)
    assert f"{array}_0" in jobs.records()


@pytest.fixture
def frozen_slurmctld(cluster: DevCluster) -> Iterator[psutil.Process]:
    daemon = slurmctld_of(cluster)
    yield daemon
    daemon.resume()


@pytest.mark.needs_pyslurm
def test_pyslurm_that_waits_for_slurm_stops_no_thread_of_ours(
    cluster: DevCluster, frozen_slurmctld: psutil.Process
) -> None:
    (client,) = pyslurm_client()
    longest_s, before, is_over = 0.0, time.monotonic(), threading.Event()

    def tick() -> None:
        nonlocal longest_s, before
        while not is_over.wait(0.02):
            longest_s, before = max(longest_s, time.monotonic() - before), time.monotonic()

    client.jobs(NAME)
    frozen_slurmctld.suspend()
    threading.Timer(4.0, frozen_slurmctld.resume).start()
    ticking = threading.Thread(target=tick)
    ticking.start()
    began = time.monotonic()
    client.jobs(NAME)
    took_s = time.monotonic() - began
    is_over.set()
    ticking.join()
    assert took_s > 3
    assert longest_s < 2


@pytest.mark.needs_pyslurm
def test_pyslurms_process_that_is_killed_or_stopped_costs_one_look(
    cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.slurm.pyslurm_client._TIMEOUT_S", 1.0)
    for client in pyslurm_client():
        (server,) = servers()
        server.kill()
        server.wait(10)
        assert client.jobs("no such name") == []
        (server,) = servers()
        server.send_signal(signal.SIGSTOP)
        with pytest.raises(TransientError, match="no answer within 1 s"):
            client.jobs(NAME)
        assert client.jobs("no such name") == []
    assert not servers()


def servers() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if "pyslurm_server.py" in " ".join(each.cmdline())]


@pytest.mark.needs_pyslurm
def test_auto_takes_pyslurm_where_it_matches_the_cluster(cluster: DevCluster) -> None:
    for _ in pyslurm_client():
        selected = select_client("auto")
        assert isinstance(selected.client, PyslurmClient)
        assert "matches the cluster" in selected.reason
        selected.client.close()


@pytest.mark.needs_pyslurm
def test_pyslurm_of_another_release_is_not_taken(
    cluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in pyslurm_client():
        scontrol = tmp_path / "scontrol"
        scontrol.write_text("#!/bin/sh\necho slurm 24.11.5\n")
        scontrol.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        selected = select_client("auto")
        assert isinstance(selected.client, CliClient)
        assert "does not speak with Slurm 24.11.5" in selected.reason
        with pytest.raises(SetupError, match=r"pyslurm 22\.5.*24\.11\.5.*auto or cli"):
            select_client("pyslurm")
