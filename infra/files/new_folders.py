"""Folders that a refused command made: they go again, as far as they are empty. Files are never touched."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def empty_folders_removed(root: Path, *, on: type[Exception]) -> Generator[None]:
    """Remove `root`, what is below it and what leads to it, where the block ends with `on`, made them and left them
    empty.

    A `root` that was there before stays as the block leaves it.
    """
    made = [folder for folder in (root, *root.parents) if not folder.exists()]
    try:
        yield
    except on:
        below = (
            [] if root not in made else [path for path in root.rglob("*") if path.is_dir() and not path.is_symlink()]
        )
        for folder in (*sorted(below, reverse=True), *made):
            with suppress(OSError):  # a file, not empty, or in use by another command
                folder.rmdir()
        raise
