"""A process that waits goes to the launch that would have started the same, and never outlives who started it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from infra.jobs.base import JobState, LaunchSpec, Placement
from infra.jobs.environment import job_environment
from infra.launchers.local import LocalLauncher
from infra.launchers.waiting import waiting_processes
from tests.support.processes import is_alive

ROOT = Path(__file__).resolve().parents[4]
TELL = "import os; print(os.getpid(), os.getcwd(), *arguments)"
WAITING = f"from infra.launchers.waiting import prepare_until_ordered as wait; arguments = wait(lambda: None); {TELL}"
ENV = {"PYTHONPATH": str(ROOT)}
SHARE = Placement(num_gpus=0, num_cpus=1, cpu_ids=(max(os.sched_getaffinity(0)),))
PARENT = f"""
import psutil, sys, time
from infra.jobs.base import Placement
from infra.jobs.environment import job_environment
from infra.launchers.waiting import waiting_processes
share = Placement(num_gpus=0, num_cpus=1)
waiting_processes.start((sys.executable, "-c", {WAITING!r}), job_environment({ENV!r}, share), share)
print(psutil.Process().children()[0].pid, flush=True)
"""


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[LaunchSpec]:
    """A launch whose program waits; started afresh it says so."""
    yield LaunchSpec(
        key="job",
        argv=(sys.executable, "-c", f"arguments = ['afresh']; {TELL}"),
        waiting_argv=(sys.executable, "-c", WAITING),
        arguments=("one", "two words"),
        cwd=tmp_path,
        log_path=tmp_path / "log",
        placement=SHARE,
        env=ENV,
    )
    waiting_processes.end()


def start_waiting(spec: LaunchSpec) -> psutil.Process:
    before = set(psutil.Process().children())
    waiting_processes.start(spec.waiting_argv, job_environment(spec.env, spec.placement), spec.placement)
    (process,) = set(psutil.Process().children()) - before
    return process


def run(spec: LaunchSpec) -> list[str]:
    """What the job said."""
    launcher = LocalLauncher()
    (job,) = launcher.submit([spec])
    assert launcher.wait(job, timeout_s=60.0).state is JobState.SUCCEEDED
    return spec.log_path.read_text().split(maxsplit=2)


def test_a_launch_of_the_same_adopts_it(spec: LaunchSpec) -> None:
    waiting = start_waiting(spec)
    assert waiting.cpu_affinity() == list(SHARE.cpu_ids)
    assert run(spec) == [str(waiting.pid), str(spec.cwd), "one two words\n"]


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: replace(spec, env=ENV | {"OTHER": "1"}),
        lambda spec: replace(spec, placement=replace(SHARE, num_cpus=2)),
        lambda spec: replace(spec, waiting_argv=("/usr/bin/python3", "-c", WAITING)),
        lambda spec: replace(spec, waiting_argv=()),
    ],
)
def test_a_launch_of_anything_else_starts_afresh_and_ends_it(
    spec: LaunchSpec, change: Callable[[LaunchSpec], LaunchSpec]
) -> None:
    waiting = start_waiting(spec)
    pid, _, said = run(change(spec))
    assert (said, pid == str(waiting.pid)) == ("afresh\n", False)
    assert not waiting.is_running()


def test_one_that_has_died_is_not_adopted(spec: LaunchSpec) -> None:
    waiting = start_waiting(spec)
    waiting.kill()
    os.waitid(os.P_PID, waiting.pid, os.WEXITED | os.WNOWAIT)
    assert run(spec)[2] == "afresh\n"


def test_an_environment_that_has_changed_since_is_another(spec: LaunchSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    start_waiting(spec)
    monkeypatch.setenv("VLLM_OF_LATE", "1")
    assert run(spec)[2] == "afresh\n"


@pytest.mark.parametrize("is_killed", [False, True])
def test_it_ends_with_the_process_that_started_it(is_killed: bool) -> None:
    code = PARENT + "time.sleep(600)" * is_killed
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ | ENV, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        waiting = int(parent.stdout.readline())
        if is_killed:
            parent.kill()
    deadline = time.monotonic() + 30
    while is_alive(waiting):
        assert time.monotonic() < deadline, f"process {waiting} stays"
        time.sleep(0.05)
