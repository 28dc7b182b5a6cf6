"""find_checkpoints: every checkpoint below a folder, by names alone, cheaply enough to be asked again and again.

Opens no file. A folder that vanishes or cannot be read while it is listed is not there, for this time. Folders that
trainers make in passing, hidden ones, critics and AReaL's recover_checkpoint are not looked at. Links to folders are
taken for what they lead to, once; they are not followed further down, so that a loop of links ends.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from infra.checkpoints.global_step import named_position
from infra.checkpoints.layouts.base import Layout
from infra.checkpoints.layouts.registry import PLAIN, is_unfinished, recognise
from schemas.training_position import TrainingPosition

_MAX_DEPTH: Final = 6
"""Folders below the root: as far as AReaL's fileroot is above: checkpoints, user, experiment, trial, name."""
_NOT_EVALUATED: Final = frozenset({"critic", "recover_checkpoint"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A folder that is, or is becoming, a checkpoint."""

    folder: Path
    """The folder of the save, as its trainer names it."""
    layout: Layout
    """Whose it is."""
    model: Path | None
    """Where the weights are, in the layout of save_pretrained; None when there are none."""
    conversion: str | None
    """The command that makes such a folder, where the trainer's dump needs one."""
    position: TrainingPosition
    """What the folder's name tells; once it has been inspected, what its trainer's state tells as well."""

    @property
    def is_marked(self) -> bool:
        """Whether the trainer itself says that the save is whole."""
        return self.model is not None and self.layout.is_marked(self.folder, self.model)


class _Place(NamedTuple):
    """What a folder is, whatever it is called."""

    device: int
    inode: int


def find_checkpoints(root: Path, *, skipped: Collection[Path] = ()) -> list[FoundCheckpoint]:
    """Return the checkpoints in `root` and below it, or `root` itself, by training step; unknown steps first.

    `skipped`: folders not to look into, as `root` leads to them.

    Raises:
        OSError: `root` itself cannot be listed.
    """
    with os.scandir(root):
        pass  # raises for the root, which alone must be there
    found: dict[_Place, FoundCheckpoint] = {}
    for checkpoint, place in _search(root, 0, frozenset(skipped)):
        other = found.get(place)
        if other is None or other.folder.is_symlink():
            found[place] = checkpoint
    return sorted(found.values(), key=training_order)


def training_order(checkpoint: FoundCheckpoint) -> tuple[int, str]:
    """Return what checkpoints are sorted by: the training step, unknown ones first."""
    step = checkpoint.position.global_step
    return (-1 if step is None else step, str(checkpoint.folder))


def _search(folder: Path, depth: int, skipped: frozenset[Path]) -> Iterator[tuple[FoundCheckpoint, _Place]]:
    try:
        with os.scandir(folder) as listing:
            entries = list(listing)
        place = _place_of(folder)
        recognised = recognise(folder, frozenset(entry.name for entry in entries))
        below = [Path(entry.path) for entry in entries if _may_hold_checkpoints(entry)]
    except OSError:
        return
    if recognised is not None:
        layout, contents = recognised
        position = named_position(folder)
        yield (
            FoundCheckpoint(
                folder=folder, layout=layout, model=contents.model, conversion=contents.conversion, position=position
            ),
            place,
        )
    # a trainer's last model lies in the folder above its checkpoints
    is_above = recognised is None or (depth == 0 and recognised.layout is PLAIN)
    if is_above and depth < _MAX_DEPTH and (depth == 0 or not folder.is_symlink()):
        for child in below:
            if child not in skipped:
                yield from _search(child, depth + 1, skipped)


def _place_of(folder: Path) -> _Place:
    status = folder.stat()
    return _Place(status.st_dev, status.st_ino)


def _may_hold_checkpoints(entry: "os.DirEntry[str]") -> bool:
    name = entry.name
    try:
        return not (name.startswith(".") or name in _NOT_EVALUATED or is_unfinished(name)) and entry.is_dir()
    except OSError:  # a link to itself, or one that may not be followed
        return False
