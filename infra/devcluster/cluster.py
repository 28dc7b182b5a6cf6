"""Bring a development cluster up, say how it is, take it down.

`up` and `down` may be called again at any time; what a killed call left half-done is finished by the next one.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil
from pydantic import ValidationError

from infra.devcluster.configuration import ClusterPaths, node_names
from infra.devcluster.daemons import (
    end_daemons,
    foreign_daemons,
    is_running,
    job_processes,
    remove_control_groups,
    start_daemon,
)
from infra.devcluster.preparation import (
    can_limit_memory,
    check_machine,
    find_free_ports,
    find_program,
    make_database,
    write_files,
)
from infra.devcluster.readiness import READY_STATES, Readiness
from infra.files.atomic import write_text_atomically
from infra.jobs.environment import clean_environment
from infra.machine.processes import end_processes
from schemas.devcluster import DevClusterDaemon, DevClusterSpec, DevClusterState, DevClusterStatus
from schemas.errors import SetupError
from schemas.paths import expand_user

_JOBS_END_S: Final = 10.0
"""A cancelled job has KillWait, 3 s, to end by itself."""


class DevCluster:
    """The cluster whose state lies in one folder."""

    def __init__(self, folder: Path) -> None:
        """`folder` need not exist."""
        self.paths = ClusterPaths(folder=expand_user(folder).absolute())
        self._readiness = Readiness(self.paths, self.environment())

    def spec(self) -> DevClusterSpec | None:
        """Return the shape of the cluster in the folder; None where there is none.

        Raises:
            SetupError: its state cannot be read.
        """
        state = self._read()
        return None if state is None else state.spec

    def up(self, spec: DevClusterSpec) -> DevClusterStatus:
        """Start what does not run yet, let every node take jobs again, and return once it does.

        It takes about 2 s, with accounting 10 s.

        Raises:
            SetupError: this user or machine cannot, another shape is up in that folder, or a node does not come up.
        """
        check_machine(self.paths.folder, spec)
        state = self._read()
        is_new = state is None
        if state is None:
            state = self._create(spec)
        elif state.spec != spec:
            raise SetupError(
                f"the cluster in {self.paths.folder} has {_shape(state.spec)}, not {_shape(spec)}: "
                "`milepost devcluster down` first, or name another --folder"
            )
        write_files(state, self.paths)
        daemons = self._start(state)
        if not is_new:
            self._readiness.resume_nodes()
        self._readiness.wait_for_nodes(daemons, node_names(spec))
        return self.status()

    def status(self) -> DevClusterStatus:
        """Say how the cluster is; changes nothing.

        Raises:
            SetupError: its state cannot be read.
        """
        state = self._read()
        paths = self.paths
        if state is None:
            return DevClusterStatus(
                folder=paths.folder, slurm_conf=paths.slurm_conf, is_up=False, foreign_daemons=foreign_daemons(())
            )
        running = {daemon.name for daemon in state.daemons if is_running(daemon)}
        missing = tuple(name for name in self._commands(state.spec) if name not in running)
        words = self._readiness.node_states() if "slurmctld" in running else {}
        nodes = {node: words[node] for node in node_names(state.spec) if node in words}
        ready = [node for node, word in nodes.items() if word in READY_STATES]
        return DevClusterStatus(
            folder=paths.folder,
            slurm_conf=paths.slurm_conf,
            is_up=not missing and len(ready) == state.spec.num_nodes,
            nodes=nodes,
            missing_daemons=missing,
            limits_memory=can_limit_memory(),
            foreign_daemons=foreign_daemons(state.daemons),
        )

    def stop(self, name: str, *, by_force: bool) -> DevClusterStatus:
        """End one daemon, by SIGKILL if `by_force`, to see what its failure does; `up` starts it again.

        Raises:
            SetupError: there is no such daemon, it is another user's, or its state cannot be read.
        """
        state = self._read()
        daemons = {daemon.name: daemon for daemon in state.daemons} if state is not None else {}
        if name not in daemons:
            known = ", ".join(daemons) or "none: `milepost devcluster up` first"
            raise SetupError(f"{name!r} is no daemon of the cluster in {self.paths.folder}; it has {known}")
        end_daemons([daemons[name]], by_force=by_force)
        return self.status()

    def down(self) -> None:
        """Cancel every job, end every process that `up` started, and remove the folder. Nothing where none is up.

        Raises:
            SetupError: its state cannot be read, its processes are another user's, or its folder cannot be removed.
        """
        state = self._read()
        if state is None:
            return
        if any(daemon.name == "slurmctld" and is_running(daemon) for daemon in state.daemons):
            for word in ("PENDING", "RUNNING", "SUSPENDED"):
                self._readiness.ask("scancel", f"--state={word}")
            psutil.wait_procs(self._job_processes(), timeout=_JOBS_END_S)
        end_daemons(state.daemons)
        # what runs a job outlives its slurmd, and the job with it
        end_processes(self._job_processes(), grace_s=0.0)
        remove_control_groups(node_names(state.spec))
        try:
            shutil.rmtree(self.paths.folder)
        except OSError as exc:
            raise SetupError(
                f"{exc.filename} cannot be removed ({exc.strerror}); the cluster's processes have ended: remove "
                f"{self.paths.folder} as the user that made it"
            ) from exc

    def environment(self) -> dict[str, str]:
        """Return this process's environment, made to talk with the cluster."""
        return clean_environment(os.environ) | {"SLURM_CONF": str(self.paths.slurm_conf)}

    def _job_processes(self) -> list[psutil.Process]:
        return job_processes(self.paths.folder, self.paths.slurm_conf)

    def _read(self) -> DevClusterState | None:
        path = self.paths.state
        try:
            return DevClusterState.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as exc:
            raise SetupError(f"{path} cannot be read as the state of a cluster: {exc}") from exc

    def _create(self, spec: DevClusterSpec) -> DevClusterState:
        folder = self.paths.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise SetupError(f"{folder} is not empty and holds no cluster: name another --folder")
            folder.chmod(0o755)  # users of the cluster read slurm.conf
        except OSError as exc:
            raise SetupError(f"{folder} cannot be made: {exc}; name another --folder") from exc
        state = DevClusterState(spec=spec, first_port=find_free_ports(spec.num_nodes + 2))
        self._write(state)
        return state

    def _write(self, state: DevClusterState) -> None:
        write_text_atomically(self.paths.state, state.model_dump_json(indent=2) + "\n")

    def _start(self, state: DevClusterState) -> list[DevClusterDaemon]:
        """Start the daemons that do not run, each once those before it answer; return those of the nodes."""
        alive = {daemon.name: daemon for daemon in state.daemons if is_running(daemon)}
        for name, argv in self._commands(state.spec).items():
            if name not in alive:
                if name == "mysqld":
                    make_database(self.paths)
                alive[name] = self._start_daemon(name, argv)
                # at once: what is not noted would never be ended
                state = state.model_copy(update={"daemons": tuple(alive.values())})
                self._write(state)
            self._readiness.wait_for_daemon(alive[name])
            if name == "slurmdbd":
                self._readiness.register_account(["root"])
        return [daemon for name, daemon in alive.items() if name.startswith("slurmd-")]

    def _start_daemon(self, name: str, argv: Sequence[str]) -> DevClusterDaemon:
        env = self.environment() | {"MYSQL_UNIX_PORT": str(self.paths.database_socket)}
        try:
            return start_daemon(name, argv, log=self.paths.logs / f"{name}.log", env=env)
        except OSError as exc:
            raise SetupError(f"{name} cannot be started: {exc}") from exc

    def _commands(self, spec: DevClusterSpec) -> dict[str, list[str]]:
        """Return name and command line of every daemon, in the order in which they need one another."""
        paths, run = self.paths, self.paths.folder / "run"
        commands = {
            "munged": [
                *("munged", "--foreground", f"--socket={paths.munge_socket}", f"--key-file={paths.munge_key}"),
                *(f"--pid-file={run}/munged.pid", f"--seed-file={run}/munged.seed", "--num-threads=4"),
            ]
        }
        if spec.accounting:
            commands["mysqld"] = [
                *("mysqld", "--no-defaults", "--user=root", f"--datadir={paths.folder}/mysql", "--skip-networking"),
                *(f"--socket={paths.database_socket}", f"--pid-file={run}/mysql.pid"),
                *("--innodb-buffer-pool-size=128M", "--innodb-lock-wait-timeout=900"),
            ]
            commands["slurmdbd"] = ["slurmdbd", "-D"]
        commands["slurmctld"] = ["slurmctld", "-D"]
        commands |= {f"slurmd-{node}": ["slurmd", "-D", "-N", node] for node in node_names(spec)}
        return {name: [find_program(argv[0]) or argv[0], *argv[1:]] for name, argv in commands.items()}


def _shape(spec: DevClusterSpec) -> str:
    accounting = "with" if spec.accounting else "without"
    return (
        f"{spec.num_nodes} nodes of {spec.gpus_per_node} GPUs, {spec.cpus_per_node} cores and "
        f"{spec.memory_per_node_mib} MiB, {accounting} accounting"
    )
