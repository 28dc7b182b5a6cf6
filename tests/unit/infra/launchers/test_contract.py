"""The contract of every launcher: submit, watch, cancel, fail, die; names and arguments reach the job untouched."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from infra.launchers.base import JobState, Launcher, LaunchSpec, Placement
from infra.launchers.local import LocalLauncher
from schemas.errors import SetupError

HOSTILE = (
    "plain",
    "two words",
    "it's",
    'say "hi"',
    "line\nbreak",
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "back\\slash\\n",
    "-rf",
    "*",
    "日本語 🙂",
    "%s {x} ~",
)
LONG_S = 60.0
ONE_CORE = Placement(num_gpus=0, num_cpus=1)


@pytest.fixture(params=["local"])
def launcher(request: pytest.FixtureRequest) -> Launcher:
    """Return each launcher that this machine can run; another one joins by its name here."""
    return LocalLauncher(grace_s=1.0)


Submit = Callable[..., str]


@pytest.fixture
def submit(launcher: Launcher, tmp_path: Path) -> Iterator[Submit]:
    """Submit a piece of Python; whatever a test leaves running is cancelled."""
    jobs: list[str] = []

    def submit(
        code: str,
        *arguments: str,
        folder: Path = tmp_path,
        env: Mapping[str, str] | None = None,
        placement: Placement = ONE_CORE,
    ) -> str:
        spec = LaunchSpec(
            key="a job",
            argv=(sys.executable, "-c", code, *arguments),
            cwd=folder,
            log_path=folder / "log.txt",
            placement=placement,
            env=env or {},
        )
        jobs.append(launcher.submit(spec))
        return jobs[-1]

    yield submit
    for job in jobs:
        launcher.cancel(job)


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + LONG_S
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)
    return path.read_text()


def test_a_job_runs_and_succeeds(launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
    status = launcher.wait(submit("print('out'); import sys; print('err', file=sys.stderr)"), timeout_s=LONG_S)
    assert (status.state, status.exit_code, status.signal) == (JobState.SUCCEEDED, 0, None)
    assert set((tmp_path / "log.txt").read_text().split()) == {"out", "err"}


def test_a_running_job_is_not_over(launcher: Launcher, submit: Submit) -> None:
    job = submit("import time; time.sleep(60)")
    assert not launcher.wait(job, timeout_s=0.3).state.is_terminal


def test_an_exit_code_is_told(launcher: Launcher, submit: Submit) -> None:
    status = launcher.wait(submit("raise SystemExit(64)"), timeout_s=LONG_S)
    assert (status.state, status.exit_code, status.signal) == (JobState.FAILED, 64, None)


def test_a_terminal_state_stays(launcher: Launcher, submit: Submit) -> None:
    job = submit("raise SystemExit(3)")
    first = launcher.wait(job, timeout_s=LONG_S)
    assert launcher.poll(job) == launcher.cancel(job) == first


def test_a_job_killed_from_outside_is_told_with_its_signal(launcher: Launcher, submit: Submit) -> None:
    status = launcher.wait(submit("import os; os.kill(os.getpid(), 9)"), timeout_s=LONG_S)
    assert (status.state, status.exit_code, status.signal) == (JobState.KILLED, None, signal.SIGKILL)


def test_cancelling_lets_a_job_end_by_itself(launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
    code = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "pathlib.Path('ready').write_text('x')\n"
        "time.sleep(60)"
    )
    job = submit(code)
    wait_for(tmp_path / "ready")
    status = launcher.cancel(job)
    assert (status.state, status.exit_code) == (JobState.FAILED, 7)


def test_cancelling_ends_a_deaf_job_and_its_children(launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
    code = (
        "import pathlib, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path('child').write_text(str(child.pid))\n"
        "time.sleep(60)"
    )
    job = submit(code)
    child = int(wait_for(tmp_path / "child"))
    assert launcher.cancel(job).signal == signal.SIGKILL
    wait_until_gone(child)


def test_what_a_job_leaves_behind_ends_with_it(launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
    code = (
        "import pathlib, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path('child').write_text(str(child.pid))"
    )
    assert launcher.wait(submit(code), timeout_s=LONG_S).state is JobState.SUCCEEDED
    wait_until_gone(int(wait_for(tmp_path / "child")))


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + LONG_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_reaches_the_job_as_it_is(launcher: Launcher, submit: Submit, tmp_path: Path, text: str) -> None:
    folder = tmp_path / text.replace("/", "_")
    folder.mkdir()
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['TEXT'], os.getcwd()]))"
    job = submit(code, text, f"--option={text}", folder=folder, env={"TEXT": text})
    assert launcher.wait(job, timeout_s=LONG_S).state is JobState.SUCCEEDED
    assert json.loads((folder / "log.txt").read_text()) == [[text, f"--option={text}"], text, str(folder)]
    assert not list(tmp_path.rglob("pwned"))


def test_a_log_is_appended_to(launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
    for word in ("one", "two"):
        launcher.wait(submit(f"print({word!r})"), timeout_s=LONG_S)
    assert (tmp_path / "log.txt").read_text().split() == ["one", "two"]


def test_jobs_run_side_by_side(launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1]).write_text('here')\n"
        "while not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.01)"
    )
    jobs = [submit(code, "a", "b"), submit(code, "b", "a")]
    assert [launcher.wait(job, timeout_s=LONG_S).state for job in jobs] == [JobState.SUCCEEDED] * 2


def test_a_program_that_is_absent_is_a_setup_error(launcher: Launcher, tmp_path: Path) -> None:
    spec = LaunchSpec(
        key="replica 0",
        argv=(str(tmp_path / "no-python"),),
        cwd=tmp_path,
        log_path=tmp_path / "log",
        placement=ONE_CORE,
    )
    with pytest.raises(SetupError, match="no-python"):
        launcher.submit(spec)


def test_a_job_does_not_see_the_job_of_its_launcher(
    launcher: Launcher, submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = ("SLURM_JOB_ID", "PMI_RANK", "RANK", "WORLD_SIZE", "MASTER_ADDR", "PREFECT_API_KEY", "PYTHONPATH")
    for name in foreign:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("MILEPOST_KEPT", "yes")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    job = submit(code, env={"PYTHONPATH": "/ours"})
    assert launcher.wait(job, timeout_s=LONG_S).state is JobState.SUCCEEDED
    seen = json.loads((tmp_path / "log.txt").read_text())
    assert {name: seen[name] for name in foreign if name in seen} == {"PYTHONPATH": "/ours"}
    assert seen["MILEPOST_KEPT"] == "yes"


def test_a_job_gets_its_share_of_the_machine(launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    code = (
        "import json, os, threading\n"
        "print(json.dumps([sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'],"
        " os.environ['CUDA_VISIBLE_DEVICES']]))"
    )
    share = Placement(num_gpus=2, num_cpus=1, gpu_ids=("1", "3"), cpu_ids=(core,))
    assert launcher.wait(submit(code, placement=share), timeout_s=LONG_S).state is JobState.SUCCEEDED
    assert json.loads((tmp_path / "log.txt").read_text()) == [[core], "1", "1,3"]
