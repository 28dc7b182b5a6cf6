"""The launcher on a real Slurm: the contract of all launchers, every way for a job to end, a cluster in trouble."""

import ast
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from infra.devcluster.cluster import DevCluster
from infra.jobs.base import EndCause, JobState, JobStatus, LaunchSpec, Placement
from infra.launchers.slurm import SlurmLauncher
from infra.slurm.cli import CliClient
from infra.slurm.selection import select_client
from schemas.errors import SetupError, TransientError
from schemas.slurm import SlurmConfig
from tests.support.launcher_contract import LauncherContract, Submit, wait_for, wait_until_gone
from tests.support.slurm_cluster import ask, slurmctld_of, wait_until

pytestmark = pytest.mark.needs_slurm

QUICK = SlurmConfig(poll_interval_s=0.2)
LONG_S = 60.0
SLEEP = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(100)"


class Bench:
    """Launches Python on the cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launchers: list[SlurmLauncher] = []

    def launcher(self, config: SlurmConfig = QUICK, *, run_key: str = "a run") -> SlurmLauncher:
        client = select_client("auto").client
        launcher = SlurmLauncher(client, config, run_key=f"{self.folder}/{run_key}", folder=self.folder / "slurm")
        self.launchers.append(launcher)
        return launcher

    def spec(self, code: str = SLEEP, *, num_gpus: int = 0, name: str = "replica") -> LaunchSpec:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return LaunchSpec(
            key=name,
            argv=(sys.executable, "-c", code),
            cwd=folder,
            log_path=folder / "log.txt",
            placement=Placement(num_gpus=num_gpus, num_cpus=1),
        )

    def end(self, launcher: SlurmLauncher, code: str) -> JobStatus:
        (job,) = launcher.submit([self.spec(code)])
        return launcher.wait(job, timeout_s=LONG_S)

    def log(self, name: str = "replica") -> str:
        return (self.folder / name / "log.txt").read_text().strip()

    def pid(self, name: str = "replica") -> int:
        return int(wait_for(self.folder / name / "pid"))


@pytest.fixture
def bench(cluster: DevCluster, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for launcher in bench.launchers:
        launcher.close()


class TestSlurmLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self, cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLauncher]:
        folder = tmp_path_factory.mktemp("run") / 'it\'s a $(run)\n100% "so"'
        launcher = SlurmLauncher(select_client("auto").client, QUICK, run_key="a\nrun's $(key)", folder=folder)
        yield launcher
        launcher.close()

    def test_a_job_gets_its_gpus(self, launcher: SlurmLauncher, submit: Submit, tmp_path: Path) -> None:
        code = "import json, os; print(json.dumps([os.environ['OMP_NUM_THREADS'], os.environ['CUDA_VISIBLE_DEVICES']]))"
        for num_gpus, names in ((2, "0,1"), (0, "")):
            job = submit(code, placement=Placement(num_gpus=num_gpus, num_cpus=2))
            assert launcher.wait(job, timeout_s=LONG_S).state is JobState.SUCCEEDED
            assert json.loads((tmp_path / "log.txt").read_text().splitlines()[-1]) == ["2", names]


def test_a_job_is_told_with_its_node_and_made_again_on_another(bench: Bench) -> None:
    launcher = bench.launcher(SlurmConfig(poll_interval_s=0.2, exclude_nodes=("n[2-2]",)))
    tell = "import os; print(os.environ['MILEPOST_NODE'])"
    assert bench.end(launcher, tell).state is JobState.SUCCEEDED
    first = bench.log()
    assert first in ("n1", "n3")
    again = replace(bench.spec(tell, name="again"), exclude_nodes=(first,))
    jobs = launcher.submit([again, bench.spec(tell, name="other")])
    assert all(launcher.wait(job, timeout_s=LONG_S).state is JobState.SUCCEEDED for job in jobs)
    assert {"n1", "n2", "n3"} - {"n2", first} == {bench.log("again")}
    assert jobs[0].partition("_")[0] != jobs[1].partition("_")[0]
    everywhere = replace(bench.spec(), exclude_nodes=("n1", "n3"))
    with pytest.raises(SetupError, match=r"scheduler\.slurm\.exclude_nodes"):
        launcher.submit([everywhere])


def test_a_job_keeps_its_files_in_a_folder_of_its_own(bench: Bench) -> None:
    code = (
        "import os, pathlib; path = pathlib.Path(os.environ['TRITON_CACHE_DIR']); path.mkdir(parents=True); print(path)"
    )
    launcher = bench.launcher()
    jobs = launcher.submit([bench.spec(code, name="a"), bench.spec(code, name="b")])
    assert all(launcher.wait(job, timeout_s=LONG_S).state is JobState.SUCCEEDED for job in jobs)
    caches = [Path((bench.folder / name / "log.txt").read_text().strip()) for name in "ab"]
    assert caches[0] != caches[1]
    assert not any(cache.parent.exists() for cache in caches)


def test_a_job_that_takes_too_much_memory_is_out_of_memory(bench: Bench, cluster: DevCluster) -> None:
    if not cluster.status().limits_memory:
        pytest.skip("no control groups of version 1: Slurm cannot limit memory here")
    launcher = bench.launcher(SlurmConfig(poll_interval_s=0.2, memory="100M"))
    assert bench.end(launcher, "x = bytearray(400 << 20)").cause is EndCause.OUT_OF_MEMORY


def test_memory_inside_a_step_of_srun_counts_too(bench: Bench, cluster: DevCluster) -> None:
    if not cluster.status().limits_memory:
        pytest.skip("no control groups of version 1: Slurm cannot limit memory here")
    launcher = bench.launcher(SlurmConfig(poll_interval_s=0.2, memory="100M", container="srun --quiet"))
    assert bench.end(launcher, "x = bytearray(400 << 20)").cause is EndCause.OUT_OF_MEMORY


def test_want_of_memory_in_a_step_is_told_where_nobody_says_a_word_of_it(
    bench: Bench, cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.slurm.endings._STEPS_S", 50.0)  # the accounting of a busy machine lags
    if not cluster.status().limits_memory:
        pytest.skip("no control groups of version 1: Slurm cannot limit memory here")
    command = "bash -c 'srun --quiet \"$@\" >/dev/null 2>&1; exit 1' mute"
    launcher = bench.launcher(SlurmConfig(poll_interval_s=0.2, memory="100M", container=command))
    assert bench.end(launcher, "x = bytearray(400 << 20)").cause is EndCause.OUT_OF_MEMORY


def test_a_job_that_is_suspended_says_so(bench: Bench, cluster: DevCluster) -> None:
    launcher = bench.launcher()
    (job,) = launcher.submit([bench.spec()])
    bench.pid()
    ask(cluster, "scontrol", "suspend", job)
    wait_until(lambda: launcher.poll(job).is_suspended, "a suspended job")
    ask(cluster, "scontrol", "resume", job)
    wait_until(lambda: not launcher.poll(job).is_suspended, "a job that goes on")


def test_a_step_of_srun_has_the_cores_of_its_job_and_names_as_they_are(bench: Bench, cluster: DevCluster) -> None:
    config = SlurmConfig(poll_interval_s=0.2, container="srun --quiet", env={"TEXT": "it's\n$(x)"})
    code = (
        "import os, sys, time, pathlib\n"
        "print(ascii([sys.argv[1:], os.environ['TEXT'], [name for name in os.environ if 'SLURM' in name]]))\n"
        "sys.stdout.flush()\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.1)"
    )
    spec = bench.spec(code, name="it's $(a) folder")
    wide = replace(spec, argv=(*spec.argv, 'say "hi"\n'), placement=Placement(num_gpus=0, num_cpus=3))
    launcher = bench.launcher(config)
    (job,) = launcher.submit([wide])
    assert ast.literal_eval(wait_for(spec.log_path)) == [['say "hi"\n'], "it's\n$(x)", []]
    steps = ask(cluster, "scontrol", "-o", "show", "step", f"{job}.0")
    assert " CPUs=3 " in steps
    (spec.cwd / "go").touch()
    assert launcher.wait(job, timeout_s=LONG_S).state is JobState.SUCCEEDED


def test_a_container_command_runs_the_job(bench: Bench) -> None:
    launcher = bench.launcher(SlurmConfig(poll_interval_s=0.2, container="env 'INSIDE=two words'"))
    assert bench.end(launcher, "import os; print(os.environ['INSIDE'])").state is JobState.SUCCEEDED
    assert (bench.folder / "replica" / "log.txt").read_text() == "two words\n"


def test_the_configured_environment_reaches_the_job_and_no_file(bench: Bench) -> None:
    launcher = bench.launcher(SlurmConfig(poll_interval_s=0.2, env={"TOKEN": "it's\nsecret"}))
    bench.end(launcher, "import os; print(os.environ['TOKEN'])")
    assert (bench.folder / "replica" / "log.txt").read_text() == "it's\nsecret\n"
    assert not [file for file in (bench.folder / "slurm").iterdir() if "secret" in file.read_text()]


def test_the_end_of_the_time_limit_is_told(bench: Bench, cluster: DevCluster) -> None:
    launcher = bench.launcher(SlurmConfig(poll_interval_s=0.2, time="10"))
    (job,) = launcher.submit([bench.spec()])
    bench.pid()
    ask(cluster, "scontrol", "update", f"JobId={job}", "EndTime=now+1second")
    assert launcher.wait(job, timeout_s=3 * LONG_S).cause is EndCause.TIME_LIMIT  # it looks every 30 s


def test_a_cancelled_job_is_told_from_one_that_failed(bench: Bench, cluster: DevCluster) -> None:
    launcher = bench.launcher()
    (job,) = launcher.submit([bench.spec()])
    bench.pid()
    ask(cluster, "scancel", job)
    status = launcher.wait(job, timeout_s=LONG_S)
    assert (status.state, status.cause) == (JobState.KILLED, EndCause.USER)


def test_a_failed_node_is_infrastructure(bench: Bench, cluster: DevCluster) -> None:
    launcher = bench.launcher()
    (job,) = launcher.submit([bench.spec()])
    bench.pid()
    node = ask(cluster, "squeue", "-h", "-o", "%N").strip()
    ask(cluster, "scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    status = launcher.wait(job, timeout_s=LONG_S)
    assert (status.cause, status.detail.split()[0]) == (EndCause.INFRASTRUCTURE, "NODE_FAIL")


def test_a_preempted_job_is_infrastructure_and_is_not_requeued(bench: Bench, cluster: DevCluster) -> None:
    launcher = bench.launcher()
    (job,) = launcher.submit([bench.spec(num_gpus=2)])
    bench.pid()
    other = bench.launcher(SlurmConfig(poll_interval_s=0.2, partition="high"), run_key="other")
    other.submit([bench.spec(num_gpus=2, name=f"high{number}") for number in range(3)])
    status = launcher.wait(job, timeout_s=LONG_S)
    assert (status.cause, status.detail.split()[0]) == (EndCause.INFRASTRUCTURE, "PREEMPTED")


def test_a_job_that_waits_says_why(bench: Bench) -> None:
    launcher = bench.launcher()
    jobs = launcher.submit([bench.spec(num_gpus=2, name=f"r{number}") for number in range(4)])
    wait_until(lambda: launcher.poll(jobs[3]).detail in ("Resources", "Priority"), "a reason")
    assert launcher.poll(jobs[3]).state is JobState.PENDING


def test_jobs_cancelled_while_they_wait_are_over(
    bench: Bench, cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.slurm.queue_watch._LOST_AFTER_S", 4.0)
    launcher = bench.launcher(SlurmConfig(poll_interval_s=0.2, extra=("--hold",)))
    jobs = launcher.submit([bench.spec(name=f"r{number}") for number in range(3)])
    wait_until(lambda: all(launcher.poll(job).detail == "JobHeldUser" for job in jobs), "a look at the queue")
    ask(cluster, "scancel", jobs[1])
    assert launcher.wait(jobs[1], timeout_s=LONG_S).cause is EndCause.INFRASTRUCTURE  # Slurm keeps no record
    assert not launcher.poll(jobs[0]).state.is_terminal
    began = time.monotonic()
    launcher.close()
    assert [launcher.poll(job).cause for job in (jobs[0], jobs[2])] == [EndCause.USER] * 2
    assert time.monotonic() - began < 50


def test_an_array_that_somebody_cancels_while_it_waits_is_told_as_cancelled(bench: Bench, cluster: DevCluster) -> None:
    launcher = bench.launcher(SlurmConfig(poll_interval_s=0.2, extra=("--hold",)))
    jobs = launcher.submit([bench.spec(name=f"r{number}") for number in range(3)])
    ask(cluster, "scancel", jobs[0].partition("_")[0])
    assert [launcher.wait(job, timeout_s=LONG_S).cause for job in jobs] == [EndCause.USER] * 3


def test_a_job_that_can_never_start_is_refused(bench: Bench, cluster: DevCluster) -> None:
    parent = ask(cluster, "sbatch", "--parsable", "--output=/dev/null", "--wrap=exit 1").strip()
    wait_until(
        lambda: ask(cluster, "squeue", "-h", "-j", parent, "-t", "all", "-o", "%T").strip() == "FAILED", "its end"
    )
    launcher = bench.launcher(SlurmConfig(poll_interval_s=0.2, extra=(f"--dependency=afterok:{parent}",)))
    (job,) = launcher.submit([bench.spec()])
    assert launcher.wait(job, timeout_s=LONG_S).cause is EndCause.REFUSED
    wait_until(lambda: not ask(cluster, "squeue", "-h"), "an empty queue")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (SlurmConfig(partition="absent"), "scheduler.slurm.partition"),
        (SlurmConfig(constraint="absent"), "scheduler.slurm.constraint"),
        (SlurmConfig(reservation="absent"), "scheduler.slurm.reservation"),
        (SlurmConfig(memory="900T"), "scheduler.slurm.memory"),
        (SlurmConfig(extra=("--no-such-option",)), "no-such-option"),
    ],
)
def test_what_slurm_refuses_says_what_to_change(bench: Bench, config: SlurmConfig, words: str) -> None:
    with pytest.raises(SetupError, match=words):
        bench.launcher(config).submit([bench.spec()])


def test_all_replicas_cost_one_look_at_the_queue(bench: Bench) -> None:
    launcher = bench.launcher()
    jobs = launcher.submit([bench.spec("pass", name=f"r{number}") for number in range(20)])
    assert len({job.partition("_")[0] for job in jobs}) == 1
    assert [launcher.wait(job, timeout_s=LONG_S).state for job in jobs] == [JobState.SUCCEEDED] * 20


def test_what_a_dead_controller_left_is_found_and_ended(bench: Bench) -> None:
    bench.launcher().submit([bench.spec(name="a"), bench.spec(name="b")])
    bench.launcher(run_key="another").submit([bench.spec(name="c")])
    pids = {name: bench.pid(name) for name in "abc"}
    assert bench.launcher().end_earlier_jobs() == 2
    wait_until_gone(pids["a"])
    wait_until_gone(pids["b"])
    assert psutil.pid_exists(pids["c"])
    assert bench.launcher().end_earlier_jobs() == 0


class ForgetfulClient(CliClient):
    """Loses the answer to the first submission, as a connection that breaks does."""

    def __init__(self) -> None:
        super().__init__()
        self.num_submitted = 0

    def submit(self, script: Path, options: Sequence[str], env: Mapping[str, str]) -> str:
        answer = super().submit(script, options, env)
        self.num_submitted += 1
        if self.num_submitted == 1:
            raise TransientError("sbatch: Socket timed out on send/recv operation")
        return answer


def test_a_submission_without_an_answer_is_found_again(bench: Bench) -> None:
    client = ForgetfulClient()
    launcher = SlurmLauncher(client, QUICK, run_key=str(bench.folder), folder=bench.folder / "slurm")
    bench.launchers.append(launcher)
    (job,) = launcher.submit([bench.spec("pass")])
    assert launcher.wait(job, timeout_s=LONG_S).state is JobState.SUCCEEDED
    assert client.num_submitted == 1


def test_a_cancellation_while_slurm_is_away_is_not_forgotten(
    bench: Bench, cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.slurm.queue_watch._UNHEARD_S", 1.0)
    launcher = bench.launcher(SlurmConfig(poll_interval_s=0.2, extra=("--hold",)))
    (job,) = launcher.submit([bench.spec()])
    spec = cluster.spec()
    assert spec is not None
    cluster.stop("slurmctld", by_force=True)
    assert not launcher.cancel(job).state.is_terminal
    cluster.up(spec)
    assert launcher.wait(job, timeout_s=LONG_S).cause is EndCause.USER
    assert not ask(cluster, "squeue", "-h")


def test_jobs_of_a_node_that_does_not_answer_do_not_hold_the_next_attempt_up(
    bench: Bench, cluster: DevCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("infra.slurm.queue_watch._END_S", 3.0)
    bench.launcher(SlurmConfig(poll_interval_s=0.2, exclude_nodes=("n[1-2]",))).submit([bench.spec()])
    pid = bench.pid()
    spec = cluster.spec()
    assert spec is not None
    cluster.stop("slurmd-n3", by_force=True)
    assert bench.launcher().end_earlier_jobs() == 1
    assert "not over yet" in caplog.text
    cluster.up(spec)
    wait_until_gone(pid)


def test_a_controller_of_slurm_that_is_away_fails_no_job(bench: Bench, cluster: DevCluster) -> None:
    launcher = bench.launcher()
    code = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.1)"
    (job,) = launcher.submit([bench.spec(code)])
    wait_until(lambda: launcher.poll(job).state is JobState.RUNNING, "a running job")
    spec = cluster.spec()
    assert spec is not None
    daemon = slurmctld_of(cluster)
    daemon.terminate()
    daemon.wait(60)
    time.sleep(2.0)
    assert launcher.poll(job).state is JobState.RUNNING
    (bench.folder / "replica" / "go").touch()
    time.sleep(1.0)
    cluster.up(spec)
    assert launcher.wait(job, timeout_s=LONG_S).state is JobState.SUCCEEDED


def test_a_job_killed_by_a_signal_in_its_process_is_told_with_it(bench: Bench) -> None:
    launcher = bench.launcher()
    (job,) = launcher.submit([bench.spec()])
    os.kill(bench.pid(), signal.SIGSEGV)
    status = launcher.wait(job, timeout_s=LONG_S)
    assert (status.state, status.signal, status.cause) == (JobState.KILLED, signal.SIGSEGV, EndCause.PROCESS)


def test_the_accounting_remembers_what_the_controller_forgot(bench: Bench, cluster: DevCluster) -> None:
    launcher = bench.launcher()
    (job,) = launcher.submit([bench.spec("raise SystemExit(9)")])
    launcher.wait(job, timeout_s=LONG_S)
    client = CliClient()
    wait_until(lambda: job in (client.accounted_ends([job]) or {}), "an entry in the accounting")
    ends = client.accounted_ends([job, "999999_0"])
    assert ends is not None
    assert set(ends) == {job}
    assert ends[job].job.exit_code == 9
    assert ends[job].steps


def test_slurms_commands_absent_is_a_setup_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SetupError, match=r"not installed.*devcluster"):
        CliClient().nodes()
