"""What a development cluster needs before its first process starts: a machine that can, ports, files, a database."""

import os
import secrets
import shlex
import shutil
import socket
import stat
import subprocess
from pathlib import Path
from typing import Final

from infra.devcluster.configuration import (
    FIRST_PORTS,
    ClusterPaths,
    cgroup_conf,
    gres_conf,
    node_names,
    slurm_conf,
    slurmdbd_conf,
)
from schemas.devcluster import LEAST_NODE_MEMORY_MIB, DevClusterSpec, DevClusterState
from schemas.errors import SetupError

_PACKAGES: Final = {"munged": "munge", "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sbatch": "slurm-wlm"}
_ACCOUNTING_PACKAGES: Final = {"mysqld": "mariadb-server", "slurmdbd": "slurmdbd"}
"""Program to the Debian package that brings it."""
_ADMINISTRATOR_FOLDERS: Final = "/usr/sbin:/sbin"
"""Where Debian keeps daemons; often not searched for users."""
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+")
_MAX_FOLDER: Final = 80
"""The path of a socket in it has 107 bytes at most."""
_NULL_DEVICE: Final = os.makedev(1, 3)
_DEVICE_MODE: Final = 0o020666
"""A character device that everybody may read and write."""
_DATABASE_SETUP_S: Final = 120.0


def check_machine(folder: Path, spec: DevClusterSpec) -> None:
    """Return if a cluster of this shape can be brought up here.

    Raises:
        SetupError: programs, rights or a usable folder are missing, with what to do.
    """
    problems: list[str] = []
    packages = _PACKAGES | (_ACCOUNTING_PACKAGES if spec.accounting else {})
    if missing := sorted({package for program, package in packages.items() if find_program(program) is None}):
        problems.append(
            f"not installed: {', '.join(missing)}; on Debian or Ubuntu: sudo apt-get install "
            f"--no-install-recommends {' '.join(sorted({*missing, 'slurm-wlm-basic-plugins'}))}"
        )
    if os.geteuid() != 0:
        problems.append(
            "only root can start nodes that run jobs and make device files: run it as root, or in a container"
        )
    if not set(str(folder)) <= _PLAIN or len(str(folder)) > _MAX_FOLDER:
        problems.append(
            f"the folder {str(folder)!r} cannot stand in Slurm's files: allowed are letters, digits and ./_-+, at most "
            f"{_MAX_FOLDER} of them; name another --folder"
        )
    if problems:
        raise SetupError("; ".join(problems))


def node_memory_mib(available_bytes: int) -> int:
    """Return what each node may declare to have: all memory that is available, which they share.

    Raises:
        SetupError: it is too little for a node.
    """
    available_mib = available_bytes >> 20
    if available_mib < LEAST_NODE_MEMORY_MIB:
        raise SetupError(
            f"{available_mib} MiB of memory are available here and a node needs at least {LEAST_NODE_MEMORY_MIB}: end "
            "other programs, or raise the limit of this container"
        )
    return available_mib


def find_program(name: str) -> str | None:
    """Return where a program of Slurm is, also outside a user's search path."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_ADMINISTRATOR_FOLDERS}")


def find_free_ports(count: int) -> int:
    """Return the first of `count` neighbouring ports that nobody listens on.

    Raises:
        SetupError: there are none.
    """
    for first in FIRST_PORTS:
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise SetupError(f"no {count} neighbouring ports from {FIRST_PORTS.start} to {FIRST_PORTS.stop} are free")


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def write_files(state: DevClusterState, paths: ClusterPaths) -> None:
    """Make folders, device files, the secret of munge and Slurm's files; what is there already stays or is renewed.

    Raises:
        SetupError: the folder cannot be written, or munge takes no socket in it, or the machine refuses device files.
    """
    spec = state.spec
    closed = [folder for folder in (paths.folder, *paths.folder.parents) if not folder.stat().st_mode & stat.S_IXOTH]
    if closed:
        raise SetupError(
            f"{closed[0]} is closed to other users, and munge takes no socket below such a folder: `chmod o+x "
            f"{shlex.quote(str(closed[0]))}`, or name another --folder"
        )
    try:
        for name in ("etc", "run", "log", "dev", "state", *(f"spool.{node}" for node in node_names(spec))):
            (paths.folder / name).mkdir(exist_ok=True)
        for node in node_names(spec):
            for gpu in range(spec.gpus_per_node):
                if not (device := paths.device(node, gpu)).exists():
                    os.mknod(device, _DEVICE_MODE, _NULL_DEVICE)
        if not paths.munge_key.exists():
            _write_private(paths.munge_key, secrets.token_bytes(128))
        for name, text in _texts(state, paths).items():
            paths.slurm_conf.with_name(name).write_text(text, "utf-8")
        if spec.accounting:
            database = slurmdbd_conf(paths, first_port=state.first_port)
            _write_private(paths.slurm_conf.with_name("slurmdbd.conf"), database.encode())
    except OSError as exc:
        raise SetupError(f"the cluster's files cannot be made in {paths.folder}: {exc}; name another --folder") from exc


def _write_private(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


def _texts(state: DevClusterState, paths: ClusterPaths) -> dict[str, str]:
    with_cgroups = can_limit_memory()
    host = socket.gethostname().partition(".")[0]
    return {
        "slurm.conf": slurm_conf(state.spec, paths, first_port=state.first_port, host=host, with_cgroups=with_cgroups),
        "gres.conf": gres_conf(state.spec, paths),
        "cgroup.conf": cgroup_conf(with_cgroups=with_cgroups),
    }


def can_limit_memory() -> bool:
    """Whether this machine has control groups of version 1 that Slurm can write."""
    return os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK)


def make_database(paths: ClusterPaths) -> None:
    """Make MariaDB's own tables where they are not there yet.

    Raises:
        SetupError: its program fails, with its last words.
    """
    data = paths.folder / "mysql"
    if (data / "mysql").is_dir():
        return
    command = ["mysql_install_db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db"]
    command.append("--auth-root-authentication-method=socket")
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_DATABASE_SETUP_S)
    except (OSError, subprocess.SubprocessError) as exc:
        said = str(getattr(exc, "stderr", None) or exc).strip()
        raise SetupError(f"MariaDB's tables cannot be made in {data}: {said}") from exc
