"""Wait until the parts of a development cluster answer; fail as soon as one cannot any more."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from infra.devcluster.configuration import ACCOUNT, MAIN_PARTITION, ClusterPaths
from infra.devcluster.daemons import is_running
from infra.files.log_files import read_end
from schemas.devcluster import DevClusterDaemon
from schemas.errors import SetupError

READY_STATES: Final = frozenset({"idle", "mixed", "allocated", "completing"})
"""Words of sinfo for nodes that take jobs or will."""
_WRONG_STATES: Final = ("drain", "inval", "fail", "error")
"""A node does not leave these by itself."""
_START_S: Final = 180.0
_COMMAND_S: Final = 30.0
_POLL_S: Final = 0.05
_TAIL_LINES: Final = 5
_TAIL_BYTES: Final = 4096


class Readiness:
    """Asks the daemons of one cluster."""

    def __init__(self, paths: ClusterPaths, env: Mapping[str, str]) -> None:
        """`env` makes Slurm's commands talk with the cluster."""
        self._paths = paths
        self._env = env

    def wait_for_daemon(self, daemon: DevClusterDaemon) -> None:
        """Return once the daemon answers; one without a question of its own counts as ready.

        Raises:
            SetupError: it ended, or did not answer in time; its last words are told.
        """
        questions = {
            "munged": ["munge", f"--socket={self._paths.munge_socket}", "-n"],
            "mysqld": ["mysql", "--no-defaults", f"--socket={self._paths.database_socket}", "-e", "select 1"],
            "slurmdbd": ["sacctmgr", "-n", "show", "cluster"],
            "slurmctld": ["scontrol", "ping"],
        }
        question = questions.get(daemon.name)
        if question is not None:
            self._wait(lambda: self.ask(*question) is not None, daemon)

    def wait_for_nodes(self, daemons: Sequence[DevClusterDaemon], names: Sequence[str]) -> None:
        """Return once every node takes jobs.

        Raises:
            SetupError: a node is drained or its slurmd ended, or they were not ready in time.
        """
        by_node = {daemon.name.removeprefix("slurmd-"): daemon for daemon in daemons}

        def are_ready() -> bool:
            states = self.node_states()
            for node, words in states.items():
                if any(wrong in words for wrong in _WRONG_STATES):
                    reason = (self.ask("sinfo", "-h", "-n", node, "-o", "%E") or "").strip()
                    raise SetupError(f"node {node} came up as {words} ({reason}){self._last_words(by_node[node])}")
            return all(states.get(node) in READY_STATES for node in names)

        for node in names:
            self._wait(are_ready, by_node[node])

    def node_states(self) -> dict[str, str]:
        """Return sinfo's word by node; empty when nobody answers. `idle*` is a node that does not answer."""
        listing = self.ask("sinfo", "-h", "-N", "-p", MAIN_PARTITION, "-o", "%N %T") or ""
        return dict(line.split(maxsplit=1) for line in listing.splitlines() if " " in line.strip())

    def resume_nodes(self) -> None:
        """Let nodes that somebody set down or drained take jobs again."""
        for node, words in self.node_states().items():
            if words.startswith(("down", "drain")):
                self.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def register_account(self, users: Sequence[str]) -> None:
        """Make the cluster and its account known to slurmdbd; nothing where they are."""
        self.ask("sacctmgr", "-i", "add", "cluster", "milepost")
        self.ask("sacctmgr", "-i", "add", "account", ACCOUNT, "Cluster=milepost")
        for user in users:
            self.ask("sacctmgr", "-i", "add", "user", user, f"Account={ACCOUNT}", f"DefaultAccount={ACCOUNT}")

    def ask(self, *command: str) -> str | None:
        """Return what a command says; None when it fails or takes too long."""
        try:
            return subprocess.run(
                command, env=self._env, capture_output=True, text=True, timeout=_COMMAND_S, check=True
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return None

    def _wait(self, is_ready: Callable[[], bool], daemon: DevClusterDaemon) -> None:
        deadline = time.monotonic() + _START_S
        while not is_ready():
            if not is_running(daemon):
                raise SetupError(f"{daemon.name} ended at once{self._last_words(daemon)}")
            if time.monotonic() > deadline:
                raise SetupError(f"{daemon.name} was not ready after {_START_S:g} s{self._last_words(daemon)}")
            time.sleep(_POLL_S)

    def _last_words(self, daemon: DevClusterDaemon) -> str:
        log, lines = self._paths.logs / f"{daemon.name}.log", list[str]()
        with suppress(OSError):  # it never began one
            lines = read_end(log, _TAIL_BYTES).splitlines()[-_TAIL_LINES:]
        return f"; {log} ends with:\n" + "\n".join(f"    {line}" for line in lines)
