"""What a fault acts upon: the commands of one trial, their workers, their files, and the cluster they run on."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from infra.devcluster.cluster import DevCluster
from infra.fileroot.run_directory import list_runs, unfinished_runs
from tasks.inference.exchange.journal import finished_samples

ROOT: Final = Path(__file__).resolve().parents[2]
N_SAMPLES: Final = 2
_LOOK_S: Final = 0.1
_CONFIG: Final = f"""
experiment_name: faults
gconfig: {{n_samples: {N_SAMPLES}, temperature: 0.7}}
rollout: {{max_concurrent_rollouts: 8, setup_timeout: 120}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What all trials of a campaign share."""

    environment: dict[str, str]
    """Of the commands."""
    checkpoint: Path
    """A checkpoint: its tokenizer is used, its weights are not."""
    engine_python: Path
    """Interpreter of the workers."""
    cluster: DevCluster | None
    """None where the workers run on this machine."""
    num_items: int
    """Items of each run; the samples are twice as many."""
    step_s: float
    """Seconds that one token of the batch takes."""

    @property
    def replica_choices(self) -> tuple[int, ...]:
        """Numbers of replicas that there is room for."""
        most = 3 if self.cluster is not None else min(2, len(os.sched_getaffinity(0)))
        return tuple(range(1, most + 1))


class Pace(NamedTuple):
    """How an undisturbed run goes on this machine, now."""

    startup_s: float
    """From the command to its first finished sample."""
    end_s: float
    """From the last finished sample to the end of the command."""
    address_space_bytes: int
    """Of a worker at work."""


class Job(NamedTuple):
    """A job of a cluster that runs."""

    job_id: str
    node: str


class Command:
    """One command of `milepost`, in a process group of its own, as a shell starts it."""

    def __init__(self, arguments: Sequence[str], log_path: Path, environment: dict[str, str]) -> None:
        """Start it; what it says goes to `log_path`."""
        self.log_path = log_path
        program = [sys.executable, "-c", "from flows.cli import main; main()", *arguments]
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                program,
                cwd=log_path.parent,
                env=environment | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def messages(self) -> str:
        """What it has said."""
        return self.log_path.read_text("utf-8", "replace")

    def wait(self, timeout_s: float) -> int | None:
        """Return its exit code; None, and kill it, when it does not end in time."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self) -> None:
        """End it at once."""
        if self.is_running:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass(slots=True, kw_only=True)
class Scene:
    """One trial: all of its commands have one fileroot and are the same but for the number of replicas."""

    world: World
    folder: Path
    """For the trial alone; exists."""
    rng: random.Random
    """What is left to chance; its seed is recorded."""
    overrides: list[str]
    """Settings of this trial's commands."""
    pace: Pace
    """What to expect."""
    commands: list[Command] = field(default_factory=list[Command])

    @property
    def fileroot(self) -> Path:
        """Where the runs are."""
        return self.folder / "out"

    def start(self, backend: str) -> Command:
        """Give the command with that backend."""
        config = self.folder / "config.yaml"
        config.write_text(_CONFIG)
        world = self.world
        on_slurm = ["scheduler.type=slurm", "scheduler.slurm.memory=500M", "scheduler.slurm.cpus_per_replica=1"]
        arguments = [
            "evaluate",
            str(config),
            f"actor.path={world.checkpoint}",
            f"cluster.fileroot={self.fileroot}",
            f"valid_dataset.path=reasoning_gym:chain_sum?size={world.num_items}&seed=1",
            f"engine.python={world.engine_python}",
            f"engine.stand_in.step_s={world.step_s}",
            f"rollout.backend={backend}",
            *(on_slurm if world.cluster else []),
            *self.overrides,
        ]
        self.commands.append(Command(arguments, self.folder / f"command-{len(self.commands)}.log", world.environment))
        return self.commands[-1]

    def num_finished(self) -> int:
        """Return how many samples are in the journals."""
        return len(finished_samples(folder for run in list_runs(self.fileroot) for folder in run.replica_dirs()))

    def is_resumable(self) -> bool:
        """Whether the same command would go on with a run, or make the first one."""
        runs = list(list_runs(self.fileroot))
        return not runs or bool(unfinished_runs(self.fileroot))

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes of this trial, wherever they run: a cluster's nodes are on this machine too."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                words = [*process.cmdline(), process.cwd()]
            except psutil.Error:
                continue
            if "tasks.inference.worker" in words and any(str(self.fileroot) in word for word in words):
                found.append(process)
        return sorted(found, key=lambda process: process.pid)

    def pick_worker(self) -> psutil.Process | None:
        """Return one of the workers; waits for the first one, and returns None when the command ends without."""
        while self.commands[-1].is_running:
            if workers := self.workers():
                return self.rng.choice(workers)
            time.sleep(_LOOK_S)
        return None

    def ask(self, *command: str) -> str:
        """Return what one of Slurm's commands says.

        Raises:
            subprocess.CalledProcessError: it refuses.
        """
        if self.world.cluster is None:
            raise RuntimeError(f"{command[0]} needs --scheduler slurm")
        env = self.world.cluster.environment()
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    def pick_job(self) -> Job | None:
        """Return one of the running jobs; waits for the first one, and returns None as `pick_worker` does."""
        while self.commands[-1].is_running:
            listing = self.ask("squeue", "-h", "-r", "-t", "running", "-o", "%i %N %j")
            if jobs := sorted(re.findall(r"^(\S+) (\S+) milepost-", listing, re.MULTILINE)):
                return Job(*self.rng.choice(jobs))
            time.sleep(_LOOK_S)
        return None

    def end(self) -> None:
        """Kill what the trial started and still runs."""
        for command in self.commands:
            command.kill()
        for worker in self.workers():
            worker.kill()
