"""The contract of every launcher: submit, watch, cancel, fail, die; names and arguments reach the job untouched."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from infra.jobs.base import EndCause, JobState, Launcher, LaunchSpec, Placement
from schemas.errors import SetupError
from tests.support.processes import is_alive

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

Submit = Callable[..., str]


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + LONG_S
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)
    return path.read_text()


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + LONG_S
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def exiting_with(code: int, folder: Path) -> LaunchSpec:
    return LaunchSpec(
        key=f"exits with {code}",
        argv=(sys.executable, "-c", f"raise SystemExit({code})"),
        cwd=folder,
        log_path=folder / "log.txt",
        placement=ONE_CORE,
    )


class LauncherContract:
    """The tests; a subclass brings the fixture `launcher`."""

    @pytest.fixture
    def submit(self, launcher: Launcher, tmp_path: Path) -> Iterator[Submit]:
        """Submit a piece of Python; whatever a test leaves running is cancelled."""
        jobs: list[str] = []

        def submit(
            code: str,
            *arguments: str,
            folder: Path = tmp_path,
            env: Mapping[str, str] | None = None,
            placement: Placement = ONE_CORE,
            key: str = "a job",
        ) -> str:
            spec = LaunchSpec(
                key=key,
                argv=(sys.executable, "-c", code, *arguments),
                cwd=folder,
                log_path=folder / "log.txt",
                placement=placement,
                env=env or {},
            )
            jobs.extend(launcher.submit([spec]))
            return jobs[-1]

        yield submit
        for job in jobs:
            launcher.cancel(job)

    def test_a_job_runs_and_succeeds(self, launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
        status = launcher.wait(submit("print('out'); import sys; print('err', file=sys.stderr)"), timeout_s=LONG_S)
        assert (status.state, status.exit_code, status.signal) == (JobState.SUCCEEDED, 0, None)
        assert set((tmp_path / "log.txt").read_text().split()) == {"out", "err"}

    def test_a_running_job_is_not_over(self, launcher: Launcher, submit: Submit) -> None:
        job = submit("import time; time.sleep(60)")
        assert not launcher.wait(job, timeout_s=0.3).state.is_terminal

    def test_an_exit_code_is_told(self, launcher: Launcher, submit: Submit) -> None:
        status = launcher.wait(submit("raise SystemExit(64)"), timeout_s=LONG_S)
        assert (status.state, status.exit_code, status.signal) == (JobState.FAILED, 64, None)

    def test_a_terminal_state_stays(self, launcher: Launcher, submit: Submit) -> None:
        job = submit("raise SystemExit(3)")
        first = launcher.wait(job, timeout_s=LONG_S)
        assert launcher.poll(job) == launcher.cancel(job) == first

    def test_a_job_killed_from_outside_is_told_with_its_signal(self, launcher: Launcher, submit: Submit) -> None:
        status = launcher.wait(submit("import os; os.kill(os.getpid(), 9)"), timeout_s=LONG_S)
        assert (status.state, status.exit_code, status.signal) == (JobState.KILLED, None, signal.SIGKILL)

    def test_cancelling_lets_a_job_end_by_itself(self, launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
        code = (
            "import pathlib, signal, sys, time\n"
            "def end(*_): pathlib.Path('ended').touch(); sys.exit(7)\n"
            "signal.signal(signal.SIGTERM, end)\n"
            "pathlib.Path('ready').write_text('x')\n"
            "time.sleep(60)"
        )
        job = submit(code)
        wait_for(tmp_path / "ready")
        status = launcher.cancel(job)
        assert (tmp_path / "ended").exists()
        assert (status.state, status.exit_code) == (JobState.FAILED, 7) or status.cause is EndCause.USER

    def test_cancelling_ends_a_deaf_job_and_its_children(
        self, launcher: Launcher, submit: Submit, tmp_path: Path
    ) -> None:
        code = (
            "import pathlib, signal, subprocess, sys, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
            "pathlib.Path('child').write_text(str(child.pid))\n"
            "time.sleep(60)"
        )
        job = submit(code)
        child = int(wait_for(tmp_path / "child"))
        status = launcher.cancel(job)
        assert status.signal == signal.SIGKILL or status.cause is EndCause.USER
        wait_until_gone(child)

    def test_what_a_job_leaves_behind_ends_with_it(self, launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
        code = (
            "import pathlib, subprocess, sys\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
            "pathlib.Path('child').write_text(str(child.pid))"
        )
        assert launcher.wait(submit(code), timeout_s=LONG_S).state is JobState.SUCCEEDED
        wait_until_gone(int(wait_for(tmp_path / "child")))

    @pytest.mark.parametrize("text", HOSTILE)
    def test_hostile_text_reaches_the_job_as_it_is(
        self, launcher: Launcher, submit: Submit, tmp_path: Path, text: str
    ) -> None:
        folder = tmp_path / text.replace("/", "_")
        folder.mkdir()
        code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['TEXT'], os.getcwd()]))"
        job = submit(code, text, f"--option={text}", folder=folder, env={"TEXT": text}, key=text)
        assert launcher.wait(job, timeout_s=LONG_S).state is JobState.SUCCEEDED
        assert json.loads((folder / "log.txt").read_text()) == [[text, f"--option={text}"], text, str(folder)]
        assert not list(tmp_path.rglob("pwned"))

    def test_a_log_is_appended_to(self, launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
        for word in ("one", "two"):
            launcher.wait(submit(f"print({word!r})"), timeout_s=LONG_S)
        assert (tmp_path / "log.txt").read_text().split() == ["one", "two"]

    def test_jobs_run_side_by_side(self, launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
        code = (
            "import pathlib, sys, time\n"
            "pathlib.Path(sys.argv[1]).write_text('here')\n"
            "while not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.01)"
        )
        jobs = [submit(code, "a", "b"), submit(code, "b", "a")]
        assert [launcher.wait(job, timeout_s=LONG_S).state for job in jobs] == [JobState.SUCCEEDED] * 2

    def test_a_program_that_is_absent_is_a_setup_error(self, launcher: Launcher, tmp_path: Path) -> None:
        spec = LaunchSpec(
            key="replica 0",
            argv=(str(tmp_path / "no-python"),),
            cwd=tmp_path,
            log_path=tmp_path / "log",
            placement=ONE_CORE,
        )
        with pytest.raises(SetupError, match="no-python"):
            launcher.submit([spec])

    def test_a_job_does_not_see_the_job_of_its_launcher(
        self, launcher: Launcher, submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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

    def test_jobs_submitted_together_have_ids_in_their_order(self, launcher: Launcher, tmp_path: Path) -> None:
        jobs = launcher.submit([exiting_with(code, tmp_path) for code in (3, 0, 5)])
        assert [launcher.wait(job, timeout_s=LONG_S).exit_code for job in jobs] == [3, 0, 5]

    def test_where_one_job_cannot_start_none_does(self, launcher: Launcher, tmp_path: Path) -> None:
        absent = LaunchSpec(key="absent", argv=("/absent",), cwd=tmp_path, log_path=tmp_path / "x", placement=ONE_CORE)
        code = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"
        present = LaunchSpec(
            key="present",
            argv=(sys.executable, "-c", code),
            cwd=tmp_path,
            log_path=tmp_path / "log.txt",
            placement=ONE_CORE,
        )
        with pytest.raises(SetupError, match="/absent"):
            launcher.submit([present, absent])
        if (tmp_path / "pid").exists():
            wait_until_gone(int((tmp_path / "pid").read_text()))

    def test_closing_ends_what_still_runs(self, launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
        job = submit("import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)")
        pid = int(wait_for(tmp_path / "pid"))
        launcher.close()
        assert launcher.poll(job).state is JobState.KILLED
        wait_until_gone(pid)
