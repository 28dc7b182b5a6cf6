"""Which launcher a run has."""

import threading
from pathlib import Path

from infra.jobs.base import Launcher
from infra.launchers.local import LocalLauncher
from infra.launchers.slurm import SlurmLauncher
from infra.slurm.selection import select_client
from schemas.sections import SchedulerConfig


def make_launcher(scheduler: SchedulerConfig, *, run_key: str, folder: Path, stopping: threading.Event) -> Launcher:
    """Return what starts the replicas of a run, as `scheduler.type` says.

    Args:
        scheduler: the section of the configuration.
        run_key: name of the run by which its jobs are found again.
        folder: where batch scripts and what a scheduler says of its jobs are kept.
        stopping: once set, nothing waits any more for a scheduler that does not answer.
    """
    if scheduler.type == "slurm":
        client = select_client(scheduler.slurm.client).client
        return SlurmLauncher(client, scheduler.slurm, run_key=run_key, folder=folder, stopping=stopping)
    return LocalLauncher()
