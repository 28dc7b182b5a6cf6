"""What the set-up needs from the operating system, found by looking, installed where this user may.

Standard library only: it runs before any environment exists. It must not install what is already there.
"""

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path


class MissingSystemPackagesError(Exception):
    """Packages that only an administrator can install; the message is the command to run."""


def missing_for_the_engine() -> list[str]:
    """Debian packages that vLLM for the CPU generates with; `import vllm` succeeds without them."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        return ["libnuma1"]
    return []


def missing_for_building() -> list[str]:
    """Debian packages that the environments are built with, whose effect is absent for the running interpreter."""
    missing: list[str] = []
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    # The distribution's interpreter has its parts in packages; one that was built by hand brings them itself.
    if importlib.util.find_spec("ensurepip") is None:
        missing.append(f"python{version}-venv")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        missing.append(f"libpython{version}-dev")
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        # reasoning-gym needs pycosat, which comes as C source only.
        missing += ["gcc", "libc6-dev"]
    return missing


def missing_for_slurm() -> list[str]:
    """Debian packages of the cluster that the tests of Slurm bring up."""
    search = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"  # where daemons are, also for users
    packages = {"slurmctld": "slurm-wlm", "munged": "munge", "slurmdbd": "slurmdbd", "mysqld": "mariadb-server"}
    missing = [package for program, package in packages.items() if shutil.which(program, path=search) is None]
    return [*missing, "slurm-wlm-basic-plugins"] if missing else []


def missing_for_the_browser() -> list[str]:
    """Debian packages of the browser that the tests drive."""
    has_one = any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return [] if has_one else ["chromium"]


def privilege() -> list[str] | None:
    """The prefix that makes a command run as root: empty for root, sudo where it asks nothing, None where neither."""
    if os.geteuid() == 0:
        return []
    if (
        shutil.which("sudo")
        and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0
    ):
        return ["sudo", "-n"]
    return None


def install(packages: Sequence[str]) -> None:
    """Installs Debian packages without asking anything.

    Raises:
        MissingSystemPackagesError: this user may not, apt-get is absent, or it failed.
    """
    prefix = privilege()
    by_hand = f"sudo apt-get install --no-install-recommends {' '.join(packages)}"
    if shutil.which("apt-get") is None or prefix is None:
        raise MissingSystemPackagesError(
            f"this machine lacks {', '.join(packages)} and this user cannot install system packages.\n"
            f"Ask an administrator to run: {by_hand}\nand run make again."
        )
    apt_get = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    # An index that cannot be renewed may still serve: only the installation decides.
    subprocess.run([*apt_get, "update"], check=False)
    command = [*apt_get, "-o", "Dpkg::Use-Pty=0", "install", "-y", "--no-install-recommends", *packages]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise MissingSystemPackagesError(
            f"apt-get could not install {', '.join(packages)}:\n{result.stderr.strip()}\nRepair that, then: {by_hand}"
        )
