"""Paths as people write them."""

import os
from pathlib import Path


def expand_user(path: str | Path) -> Path:
    """Return a path with its `~` resolved; that of a user whom nobody knows stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises RuntimeError where nobody knows
