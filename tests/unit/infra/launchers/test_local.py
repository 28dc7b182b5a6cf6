"""Processes of this machine keep the contract, and their input ends with their launcher."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.jobs.base import JobState, Launcher, Placement
from infra.jobs.environment import clean_environment
from infra.launchers.local import LocalLauncher
from tests.support.launcher_contract import LauncherContract, Submit

LAUNCHER = """
import sys, time
from pathlib import Path
from infra.jobs.base import LaunchSpec, Placement
from infra.launchers.local import LocalLauncher
folder = Path(sys.argv[1])
code = "import sys, pathlib; pathlib.Path('up').write_text('x'); sys.stdin.read(); pathlib.Path('over').write_text('x')"
LocalLauncher().submit([LaunchSpec(key="job", argv=(sys.executable, "-c", code), cwd=folder, log_path=folder / "log",
                                   placement=Placement(num_gpus=0, num_cpus=1))])
time.sleep(60)
"""


class TestLocalLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self) -> Launcher:
        return LocalLauncher(grace_s=5.0)

    def test_a_job_gets_its_share_of_the_machine(self, launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
        core = max(os.sched_getaffinity(0))
        code = (
            "import json, os\n"
            "print(json.dumps([sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'],"
            " os.environ['CUDA_VISIBLE_DEVICES']]))"
        )
        share = Placement(num_gpus=2, num_cpus=1, gpu_ids=("1", "3"), cpu_ids=(core,))
        assert launcher.wait(submit(code, placement=share), timeout_s=60.0).state is JobState.SUCCEEDED
        assert json.loads((tmp_path / "log.txt").read_text()) == [[core], "1", "1,3"]


def test_a_job_reads_the_end_of_its_input_when_its_launcher_is_killed(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[4])}
    with subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path)], env=env) as launcher:
        wait_for(tmp_path / "up")
        time.sleep(0.2)
        assert not (tmp_path / "over").exists()
        launcher.send_signal(signal.SIGKILL)
    wait_for(tmp_path / "over")


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.01)


def test_the_clean_environment_keeps_what_names_no_job() -> None:
    kept = {"PATH": "/bin", "HOME": "/", "RANKING": "1", "HF_HOME": "/cache", "LD_LIBRARY_PATH": "/lib"}
    foreign = {"SLURM_STEP_ID": "1", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "x", "VIRTUAL_ENV": "/venv"}
    foreign |= {"SQUEUE_PARTITION": "cpu", "SINFO_NODES": "n1", "SCANCEL_STATE": "PENDING", "SACCT_FORMAT": "User"}
    foreign |= {"SCONTROL_ALL": "0", "SBATCH_ACCOUNT": "other"}
    assert clean_environment(kept | foreign) == kept
