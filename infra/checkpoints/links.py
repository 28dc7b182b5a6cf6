"""Links in a checkpoint's folder that lead out of it: whoever writes there decides what is evaluated."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from infra.checkpoints.findings import MAX_SHOWN, list_names

_BLOBS: Final = "blobs"
"""Folder of the hub client's cache that the links of its snapshots lead to."""


def describe_links(*folders: Path) -> tuple[str, ...]:
    """Return a note on the files of the folders that are linked outside of them; none where all are inside.

    Raises:
        OSError: a folder cannot be listed.
    """
    found = [f"{path.name} -> {str(target)[:MAX_SHOWN]}" for path, target in _outward_links(dict.fromkeys(folders))]
    return (f"linked outside the checkpoint: {list_names(found)}",) if found else ()


def _outward_links(folders: dict[Path, None]) -> Iterator[tuple[Path, Path]]:
    for folder in folders:
        own = folder.resolve()
        # a snapshot of the hub's cache is snapshots/REVISION beside blobs
        inside = (own, own.parent.parent / _BLOBS) if own.parent.name == "snapshots" else (own,)
        for path in sorted((*folder.iterdir(), *(folder / "chat_templates").glob("*"))):
            target = path.resolve() if path.is_symlink() else None
            if target is not None and not any(target.is_relative_to(place) for place in inside):
                yield path, target
