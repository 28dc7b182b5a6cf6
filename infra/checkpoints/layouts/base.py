"""What a layout has to say of a folder that its trainer saved.

Owns the words; a layout's own file owns the facts, with where its trainer writes them down in code. Nothing here reads
a weight, and nothing raises because files vanish: a trainer may be writing or removing the folder meanwhile.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from infra.checkpoints.adapter_config import CONFIG_NAME as ADAPTER_CONFIG

_WEIGHTS: Final = re.compile(r".*\.safetensors|(?:pytorch|adapter)_model.*\.bin", re.DOTALL)


class Contents(NamedTuple):
    """Where the weights of one save are."""

    model: Path | None
    """The folder in the layout of save_pretrained; None when there is none."""
    conversion: str | None = None
    """The trainer's own command that makes such a folder of its sharded dump; None where there is no dump."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One trainer's way to lay out its checkpoints."""

    name: str
    """As reports name it."""
    folder_name: re.Pattern[str]
    """The whole name of the folder of one save; infra/checkpoints/global_step.py reads the numbers in it."""
    locate: Callable[[Path, frozenset[str]], Contents | None]
    """From a folder and the names in it to its weights; None when it is of another trainer after all."""
    is_marked: Callable[[Path, Path], bool]
    """Whether the trainer itself says that the save is whole, from the folder and what `locate` found in it."""
    first_step: int = 1
    """Number of the first training step in folder names."""


def is_weights(name: str) -> bool:
    """Tell whether a file of this name holds weights that transformers could read."""
    return _WEIGHTS.fullmatch(name) is not None


def holds_weights(names: frozenset[str]) -> bool:
    """Tell whether a folder with these names holds weights, or is getting some."""
    return any(is_weights(name) or name.endswith(".index.json") for name in names)


def is_model(names: frozenset[str]) -> bool:
    """Tell whether a folder with these names is meant for `from_pretrained`: a model, or an adapter."""
    return bool(names & {"config.json", ADAPTER_CONFIG}) or holds_weights(names)


def names_in(folder: Path) -> frozenset[str]:
    """Return the names in a folder; none when it cannot be listed."""
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()


def is_folder(path: Path) -> bool:
    """Tell whether a path is a folder that may be looked at; False where the name is too long to be a path."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_newer(marker: Path, folder: Path, *, than: re.Pattern[str] = _WEIGHTS) -> bool:
    """Tell whether a file is there and not older than the files in `folder` of these names: one save wrote them."""
    try:
        marked_ns = marker.stat().st_mtime_ns
        with os.scandir(folder) as entries:
            return all(entry.stat().st_mtime_ns <= marked_ns for entry in entries if than.fullmatch(entry.name))
    except OSError:
        return False


def never_marked(_folder: Path, _model: Path) -> bool:
    """For a trainer that leaves no sign."""
    return False
