"""Python code apart: functions of the user's own by their dotted path, and processes that run modules of ours."""

import importlib
import os
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
WHERE_FOUND: Final = (
    "package.module.function of a module in PYTHONPATH, installed beside Milepost, or in the working directory"
)
"""What a dotted path may be, for messages."""
_NUM_LAST_LINES: Final = 5
OWN_PACKAGES: Final = frozenset({"flows", "tasks", "infra", "schemas"})
"""Names of the packages that hold our code; `milepost/packages.py` has them too."""


def import_object(path: str) -> object:
    """Return what is at a dotted path.

    Raises:
        Exception: whatever the import raises: there is no such module, it has no such name, or it fails.
    """
    if "" not in sys.path:
        sys.path.append("")  # the working directory, last: a file of the user's shadows no library
    module, _, name = path.rpartition(".")
    try:
        found: object = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as exc:
        package = module.partition(".")[0]
        if package not in OWN_PACKAGES:
            raise
        raise ModuleNotFoundError(
            f"{exc.msg}: {package!r} is a package of Milepost; give your package another name", name=exc.name
        ) from exc
    return found


def child_environment(**settings: str) -> dict[str, str]:
    """Return the environment of a child that runs a module of ours: they are found first; `settings` are added."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | settings | {"PYTHONPATH": path}


def claim_stdout() -> int:
    """Return a descriptor of standard output, which is for replies alone: what libraries print goes to stderr now."""
    replies_fd = os.dup(1)
    os.dup2(2, 1)
    return replies_fd


def last_lines(stderr: bytes) -> str:
    """Return the last of what a child said, for the message about its end."""
    return "\n".join(stderr.decode(errors="replace").splitlines()[-_NUM_LAST_LINES:])
