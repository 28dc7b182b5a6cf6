"""The processes of a development cluster: started in the background, known by number and start time, ended.

Nothing else is ever ended: a number that belongs to another process by now does not match its start time.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from infra.machine.processes import end_processes, identify_process, is_alive
from schemas.devcluster import DevClusterDaemon

_GRACE_S: Final = 15.0
"""slurmctld waits 5 s for what it has sent."""
_DAEMONS: Final = frozenset({"munged", "slurmctld", "slurmd", "slurmdbd"})


def start_daemon(name: str, argv: Sequence[str], *, log: Path, env: Mapping[str, str]) -> DevClusterDaemon:
    """Start a program in a session of its own, its output appended to `log`; it outlives this process.

    Raises:
        OSError: there is no such program.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), flags, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawnp(argv[0], list(argv), env, file_actions=actions, setsid=True)
    identity = identify_process(pid)
    if identity is None:
        raise ChildProcessError(f"{argv[0]} ended at once; see {log}")
    return DevClusterDaemon(name=name, process=identity)


def is_running(daemon: DevClusterDaemon) -> bool:
    """Whether this very process still runs; one of an earlier boot does not."""
    return is_alive(daemon.process) is True


def end_daemons(daemons: Iterable[DevClusterDaemon], *, by_force: bool = False) -> None:
    """End these processes where they run.

    Raises:
        SetupError: they are another user's.
    """
    processes: list[psutil.Process] = []
    for daemon in daemons:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(daemon.process.pid)
            if is_running(daemon):  # asked last: its number may have been given to another one
                processes.append(process)
    end_processes(processes, grace_s=0.0 if by_force else _GRACE_S)


def job_processes(folder: Path, slurm_conf: Path) -> list[psutil.Process]:
    """Return what runs a cluster's jobs: slurmd passes SLURM_CONF and SLURM_JOB_ID on to them.

    slurmstepd, which outlives its slurmd for as long as nobody takes its report, overwrites its environment: its socket
    tells.
    """
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
            is_job = "SLURM_JOB_ID" in environ and environ.get("SLURM_CONF") == str(slurm_conf)
            if is_job or (process.name() == "slurmstepd" and _has_socket_in(folder, process)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _has_socket_in(folder: Path, process: psutil.Process) -> bool:
    return any(str(socket.laddr).startswith(f"{folder}/") for socket in process.net_connections("unix"))


def foreign_daemons(own: Iterable[DevClusterDaemon]) -> tuple[str, ...]:
    """Return the daemons of Slurm on this machine that are not among `own`, as `name (pid N)`."""
    known = {daemon.process.pid for daemon in own}
    return tuple(
        f"{process.info['name']} (pid {process.pid})"
        for process in psutil.process_iter(["name"])
        if process.info["name"] in _DAEMONS and process.pid not in known
    )


def remove_control_groups(nodes: Iterable[str]) -> None:
    """Remove the control groups that slurmd made for its node and leaves; those that hold processes stay."""
    for node in nodes:
        for top in Path("/sys/fs/cgroup").glob(f"*/slurm_{node}"):
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()
