"""A development cluster comes up, is repaired, and goes without a trace."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.devcluster.preparation import check_machine
from schemas.devcluster import DevClusterSpec
from schemas.errors import SetupError
from tests.support.slurm_cluster import wait_until

pytestmark = pytest.mark.needs_slurm

ROOT = Path(__file__).resolve().parents[2]


class Commands:
    """Runs `milepost devcluster` on one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *words: str) -> tuple[int, str, str]:
        command = [sys.executable, "-c", "from flows.cli import main; main()", "devcluster", *words]
        result = subprocess.run(
            [*command, "--folder", str(self.folder)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return result.returncode, result.stdout, result.stderr

    def processes(self) -> dict[psutil.Process, list[str]]:
        """What runs because of this cluster, and with which words."""
        found: dict[psutil.Process, list[str]] = {}
        for process in psutil.process_iter():
            try:
                if str(self.folder) in process.environ().get("SLURM_CONF", ""):
                    found[process] = process.cmdline()
            except psutil.Error:
                continue
        return found


@pytest.fixture
def commands() -> Iterator[Commands]:
    folder = Path(tempfile.mkdtemp(prefix="milepost-devcluster-"))
    folder.rmdir()
    try:
        check_machine(folder, DevClusterSpec(memory_per_node_mib=1000))
    except SetupError as exc:
        pytest.skip(f"no Slurm here: {exc}")
    commands = Commands(folder)
    yield commands
    commands.run("down")


def test_up_is_repeatable_repairs_what_died_and_down_leaves_nothing(commands: Commands) -> None:
    code, shown, said = commands.run("up", "--nodes", "2", "--gpus-per-node", "3")
    assert code == 0, said
    assert "n1:idle n2:idle" in shown
    slurm_conf = shown.split("SLURM_CONF=")[1].strip()
    before = {process.pid for process in commands.processes()}
    assert commands.run("up", "--nodes", "2", "--gpus-per-node", "3")[0] == 0
    assert {process.pid for process in commands.processes()} == before
    code, _, said = commands.run("up", "--nodes", "3")
    assert (code, "has 2 nodes" in said) == (2, True)

    slurmd = next(process for process, words in commands.processes().items() if words[-1:] == ["n2"])
    slurmd.kill()
    slurmd.wait(10)
    code, shown, _ = commands.run("status")
    assert (code, "slurmd-n2" in shown) == (1, True)
    assert commands.run("up", "--nodes", "2", "--gpus-per-node", "3")[0] == 0
    wait_until(lambda: commands.run("status")[0] == 0, "a cluster that is up")

    job = ["sbatch", "--gres=gpu:3", "--output=/dev/null", "--wrap", "trap '' TERM; sleep 300"]
    environment = {"SLURM_CONF": slurm_conf, "PATH": "/usr/bin:/bin"}
    subprocess.run(job, env=environment, check=True, capture_output=True)
    listing = ["squeue", "-h", "-o", "%T"]
    wait_until(
        lambda: b"RUNNING" in subprocess.run(listing, env=environment, check=True, capture_output=True).stdout,
        "a running job",
    )
    listening = {
        connection.laddr.ip
        for process in commands.processes()
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    assert commands.run("down")[0] == 0
    wait_until(lambda: not commands.processes(), "the end of its processes")
    assert not commands.folder.exists()
    code, shown, _ = commands.run("status", "--json")
    assert (code, json.loads(shown)["is_up"]) == (1, False)


def test_one_daemon_can_be_stopped_and_a_node_that_was_set_down_comes_back(commands: Commands) -> None:
    code, shown, said = commands.run("up", "--nodes", "2", "--json")
    assert code == 0, said
    environment = {"SLURM_CONF": json.loads(shown)["slurm_conf"], "PATH": "/usr/bin:/bin"}
    set_down = ["scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test"]
    subprocess.run(set_down, env=environment, check=True)
    code, shown, _ = commands.run("stop", "slurmd-n1", "--kill", "--json")
    assert (code, json.loads(shown)["missing_daemons"]) == (0, ["slurmd-n1"])
    code, _, said = commands.run("stop", "slurmd-n7")
    assert (code, "it has munged, slurmctld" in said) == (2, True)
    code, shown, said = commands.run("up", "--nodes", "2", "--json")
    assert code == 0, said
    assert json.loads(shown)["nodes"] == {"n1": "idle", "n2": "idle"}


def test_down_needs_no_slurmctld_to_end_what_runs(commands: Commands) -> None:
    _, shown, _ = commands.run("up", "--nodes", "1", "--json")
    environment = {"SLURM_CONF": json.loads(shown)["slurm_conf"], "PATH": "/usr/bin:/bin"}
    job = ["sbatch", "--output=/dev/null", "--wrap", "sleep 300"]
    subprocess.run(job, env=environment, check=True, capture_output=True)
    wait_until(lambda: any(words == ["sleep", "300"] for words in commands.processes().values()), "a running job")
    steps = [process for process in psutil.process_iter(["name"]) if process.info["name"] == "slurmstepd"]
    assert steps
    assert commands.run("stop", "slurmctld", "--kill")[0] == 0
    assert commands.run("down")[0] == 0
    wait_until(lambda: not commands.processes(), "the end of its processes")
    assert not any(step.is_running() for step in steps)
    assert commands.run("down")[0] == 0


def test_a_munge_that_the_machine_has_is_named_and_left_alone(commands: Commands, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(bytes(range(128)))
    files = [f"--{name}-file={tmp_path / name}" for name in ("pid", "seed", "log")]
    command = ["munged", "--foreground", "--force", f"--socket={tmp_path / 'socket'}", f"--key-file={key}", *files]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as foreign:
        try:
            code, shown, said = commands.run("up", "--nodes", "1")
            assert code == 0, said
            (others,) = (line for line in shown.splitlines() if "left alone: " in line)
            assert f"munged (pid {foreign.pid})" in others
            assert commands.run("down")[0] == 0
            assert foreign.poll() is None
        finally:
            foreign.terminate()


def test_what_cannot_be_a_cluster_is_refused(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    for folder, words in ((tmp_path, "not empty"), (tmp_path / "a b", "letters, digits")):
        code, _, said = Commands(folder).run("up")
        assert (code, words in said) == (2, True)
