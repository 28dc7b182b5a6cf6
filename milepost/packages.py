"""Finds Milepost's four packages beside this one, whatever other packages of their names a user's project has."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

PACKAGES: Final = ("flows", "tasks", "infra", "schemas")
"""Names of the packages that hold Milepost's code."""
_ROOT: Final = Path(__file__).resolve().parents[1]


class _OwnPackages:
    """A finder of `sys.meta_path` that knows the four packages and nothing else."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a package of Milepost's lies; None for any other module."""
        return PathFinder.find_spec(fullname, [str(_ROOT)], target) if path is None and fullname in PACKAGES else None


def prefer_own_packages() -> None:
    """Import the four packages from beside this one from now on: for a process that runs Milepost and nothing else."""
    if not any(finder is _OwnPackages for finder in sys.meta_path):
        sys.meta_path.insert(0, _OwnPackages)


def require_own_packages() -> None:
    """Check that the names of the four packages stand for Milepost's in this process.

    Raises:
        ImportError: a package of the user's project was imported, or would be, in the place of one of Milepost's.
    """
    for name in PACKAGES:
        folder = _find_folder(name)
        if folder != _ROOT / name:
            raise ImportError(
                f"the package {name!r} of this process is {folder or 'not found'}, not Milepost's {_ROOT / name}; "
                "rename it, import it under another name, or run the command `milepost`, which finds its own packages"
            )


def _find_folder(name: str) -> Path | None:
    loaded = sys.modules.get(name)
    spec = loaded.__spec__ if loaded else PathFinder.find_spec(name)
    for finder in () if spec else sys.meta_path:  # an editable installation has a finder of its own
        spec = spec or finder.find_spec(name, None)
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))).resolve() if locations else None
