"""`milepost evaluate` on a real Slurm: the verdicts of one machine, and nothing lost or made twice in trouble."""

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from infra.devcluster.cluster import DevCluster
from schemas.summary import RunSummary
from tests.support.engine_environment import CHECKPOINT, require_engine
from tests.support.evaluation_commands import (
    CONFIG,
    END_S,
    Command,
    keys,
    num_finished,
    only_run,
    own_cores,
    records_of,
    samples_of,
)
from tests.support.slurm_cluster import ask, wait_until

pytestmark = [
    pytest.mark.needs_slurm,
    pytest.mark.needs_engine,
    pytest.mark.needs_prefect,
    pytest.mark.timeout(1500),
]

NUM_SAMPLES = 120
STAND_IN = (
    "engine.stand_in.step_s=0.04",
    "valid_dataset.path=reasoning_gym:chain_sum?size=60&seed=1",
    "gconfig.n_samples=2",
    "consistency.canary_tokens=4",
)
"""Answers that cost no model: about 25 seconds on three replicas."""


class Runner:
    """Starts commands on one cluster that publish into one folder."""

    def __init__(self, folder: Path, cluster: DevCluster, environment: dict[str, str]) -> None:
        self.fileroot = folder / "out"
        self.cluster = cluster
        self._folder = folder
        self.environment = environment
        self.started: list[Command] = []

    def start(self, backend: str, overrides: Sequence[str] = (), *, scheduler: str = "slurm") -> Command:
        config = self._folder / "config.yaml"
        config.write_text(CONFIG)
        arguments = [
            "evaluate",
            str(config),
            f"actor.path={CHECKPOINT}",
            f"cluster.fileroot={self.fileroot}",
            f"rollout.backend={backend}",
            "rollout.max_concurrent_rollouts=4",
            f"scheduler.type={scheduler}",
            "scheduler.slurm.poll_interval_s=0.5",
            "scheduler.slurm.cpus_per_replica=1",
            *overrides,
        ]
        cores = own_cores()[:1]
        self.started.append(Command(self._folder, arguments, self.environment, cores=cores))
        return self.started[-1]

    def jobs(self, state: str = "all") -> list[str]:
        """The jobs of these tests in that state, as `array_element`."""
        listing = ask(self.cluster, "squeue", "-h", "-r", "-t", state, "-o", "%i %j")
        return [line.split()[0] for line in listing.splitlines() if " milepost-" in line]

    def start_half(self, *, step_s: float = 0.04) -> Command:
        """Start a command and return when some of its samples are finished and all of its jobs run."""
        command = self.start("vllm:d3", [*STAND_IN, f"engine.stand_in.step_s={step_s}"])
        command.wait_for(lambda: num_finished(self.fileroot) >= 6 and len(self.jobs("running")) == 3)
        return command

    def finish(self, backend: str = "vllm:d3") -> RunSummary:
        """Give the same command again and check that nothing was lost, made twice or made again."""
        finished = num_finished(self.fileroot)
        summary = self.start(backend, [*STAND_IN, "engine.stand_in.step_s=0.002"]).summary()
        assert summary.num_planned == NUM_SAMPLES
        assert summary.num_resumed >= finished
        samples_of(summary)
        run = only_run(self.fileroot)
        attempts = [keys(records_of(run, attempt)) for attempt in range(1, summary.num_attempts + 1)]
        assert sum(len(attempt) for attempt in attempts) == NUM_SAMPLES
        assert not self.jobs("pending,running")
        return summary


@pytest.fixture
def runner(
    cluster: DevCluster,
    environment: dict[str, str],
    api: str,
    tmp_path: Path,
) -> Iterator[Runner]:
    require_engine()
    where = {"SLURM_CONF": str(cluster.paths.slurm_conf), "PREFECT_API_URL": api}
    runner = Runner(tmp_path, cluster, environment | where)
    yield runner
    for command in runner.started:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


def test_replicas_on_a_cluster_give_the_verdicts_of_one_on_this_machine(runner: Runner) -> None:
    greedy = (
        "gconfig.temperature=0",
        "gconfig.n_samples=1",
        "gconfig.max_new_tokens=16",
        "valid_dataset.path=reasoning_gym:chain_sum?size=9&seed=1",
        "scheduler.slurm.memory=6G",
    )
    here = samples_of(runner.start("vllm:d1", greedy, scheduler="local").summary())
    command = runner.start("vllm:d3t1", greedy)
    command.wait_for(lambda: len(runner.jobs("running")) == 3)
    nodes = ask(runner.cluster, "squeue", "-h", "-r", "-t", "running", "-o", "%b")
    assert set(nodes.split()) == {"gres:gpu:1"}
    there = samples_of(command.summary())
    assert set(there.column("replica").to_pylist()) == {0, 1, 2}
    for name in ("item_id", "seed", "prompt_hash", "completion", "verdict", "answer"):
        assert there.column(name).to_pylist() == here.column(name).to_pylist(), name


def kill_a_worker(runner: Runner) -> None:
    worker = next(process for process in psutil.process_iter() if is_worker(process, runner.fileroot))
    worker.kill()


def is_worker(process: psutil.Process, fileroot: Path) -> bool:
    try:
        return "tasks.inference.worker" in process.cmdline() and str(fileroot) in " ".join(process.cmdline())
    except psutil.Error:
        return False


def workers(runner: Runner) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if is_worker(process, runner.fileroot)]


def set_a_node_down(runner: Runner) -> None:
    ask(runner.cluster, "scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")


def cancel_a_job(runner: Runner) -> None:
    ask(runner.cluster, "scancel", runner.jobs("running")[0])


@pytest.mark.parametrize(("fault", "words"), [(kill_a_worker, "SIGKILL"), (set_a_node_down, "NODE_FAIL")])
def test_a_replica_that_is_lost_is_started_again_at_what_it_left(
    runner: Runner, fault: Callable[[Runner], None], words: str
) -> None:
    command = runner.start_half()
    fault(runner)
    summary = command.summary()
    assert words in command.messages
    assert samples_of(summary).num_rows == summary.num_planned == NUM_SAMPLES
    run = only_run(runner.fileroot)
    # a node may have had two of the replicas
    made = [len(keys(records_of(run, attempt))) for attempt in range(1, summary.num_attempts + 1)]
    assert len(made) >= 2
    assert sum(made) == NUM_SAMPLES
    assert not runner.jobs("pending,running")


def test_an_interrupted_command_cancels_its_jobs_and_a_job_that_somebody_cancels_is_not_started_again(
    runner: Runner,
) -> None:
    """One run that is stopped three times and goes on each time."""
    for number in (signal.SIGINT, signal.SIGTERM):
        command = runner.start_half(step_s=0.1)
        took_s = command.signal_group(number)
        assert took_s < END_S
        wait_until(lambda: not runner.jobs("pending,running,completing"), "the end of the jobs")
    command = runner.start_half(step_s=0.1)
    cancel_a_job(runner)
    command.failure(1, "cancelled")
    assert runner.finish("vllm:d2").num_attempts == 4


def test_a_killed_controller_leaves_jobs_that_the_next_one_ends(runner: Runner) -> None:
    command = runner.start_half()
    command.process.kill()
    command.process.wait()
    left = runner.jobs("running")
    assert len(left) == 3, "a killed controller cannot end its jobs"
    summary = runner.finish()
    assert summary.num_attempts == 2
    assert not set(left) & set(runner.jobs("running"))


def test_workers_end_by_themselves_when_no_controller_comes_back(runner: Runner) -> None:
    command = runner.start("vllm:d3", [*STAND_IN, "engine.stand_in.step_s=2.0"])
    command.wait_for(lambda: len(workers(runner)) == 3)
    time.sleep(5.0)  # until they watch
    command.process.kill()
    command.process.wait()
    wait_until(lambda: not runner.jobs("pending,running"), "the end of the jobs")
    assert not workers(runner)
    logs = [log.read_text() for log in (only_run(runner.fileroot).path / "logs").iterdir()]
    assert all("the controller is gone" in log for log in logs)


def test_bad_input_is_refused_before_anything_is_submitted(runner: Runner) -> None:
    before = runner.jobs()
    for overrides, words in (
        (["scheduler.slurm.partition=gpuu"], "main"),
        (["rollout.backend=vllm:d1t3"], "at most 2"),
        (["scheduler.slurm.partition=short", "scheduler.slurm.time=0:11:00"], "0:10:00"),
        (["scheduler.slurm.extra=[--array=3]"], "--array"),
        (["scheduler.slurm.cpus_per_replica=99"], "99"),
    ):
        runner.start("vllm:d3", [*STAND_IN, *overrides]).failure(2, words)
    assert set(runner.jobs()) <= set(before), "Slurm forgets jobs; none may be new"


def test_a_cluster_that_is_down_is_said_before_anything_is_made(runner: Runner, tmp_path: Path) -> None:
    text = runner.cluster.paths.slurm_conf.read_text()
    (tmp_path / "slurm.conf").write_text(re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=1", text))
    runner.environment["SLURM_CONF"] = str(tmp_path / "slurm.conf")
    runner.start("vllm:d3", STAND_IN).failure(2, "the cluster does not answer", "sinfo")
    assert not runner.fileroot.exists() or not list(runner.fileroot.glob("runs/*"))


def test_without_slurm_the_message_says_what_to_do(
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    arguments = ["evaluate", str(config), f"actor.path={CHECKPOINT}", "scheduler.type=slurm", *STAND_IN]
    arguments.append(f"cluster.fileroot={tmp_path}")
    no_slurm = environment | {"PATH": str(Path(sys.executable).parent)}
    Command(tmp_path, arguments, no_slurm, cores=[0]).failure(2, "not installed", "devcluster")
