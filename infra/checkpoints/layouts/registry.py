"""The layouts that are known, and which of them a folder has."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from infra.checkpoints.layouts.areal import AREAL
from infra.checkpoints.layouts.base import Contents, Layout, is_model, never_marked
from infra.checkpoints.layouts.nemo_rl import NEMO_RL
from infra.checkpoints.layouts.openrlhf import OPENRLHF
from infra.checkpoints.layouts.slime import SLIME
from infra.checkpoints.layouts.torchtitan import TORCHTITAN
from infra.checkpoints.layouts.transformers_trainer import TRANSFORMERS_TRAINER
from infra.checkpoints.layouts.verl import VERL

LAYOUTS: Final = (AREAL, TRANSFORMERS_TRAINER, VERL, OPENRLHF, NEMO_RL, TORCHTITAN, SLIME)
"""Every trainer's layout. Their folder names do not overlap."""

_UNFINISHED: Final = re.compile(r".+\.tmp|tmp_step_\d+|old_step_\d+|tmp-checkpoint-\d+")
"""Folders that a trainer renames when they are whole, or removes: AReaL's Archon engine, NeMo-RL, transformers."""


def _locate_plain(folder: Path, names: frozenset[str]) -> Contents | None:
    return Contents(folder) if is_model(names) else None


PLAIN: Final = Layout(name="huggingface", folder_name=re.compile(r".+"), locate=_locate_plain, is_marked=never_marked)
"""A folder that save_pretrained wrote, under whatever name."""


class Recognised(NamedTuple):
    """A folder's layout and where its weights are."""

    layout: Layout
    contents: Contents


def recognise(folder: Path, names: frozenset[str]) -> Recognised | None:
    """Return the layout of a folder that holds these names; None when it is no checkpoint of any.

    A link such as `latest` is judged by the folder that it leads to.
    """
    for layout in (*layouts_of(folder), PLAIN):
        contents = layout.locate(folder, names)
        if contents is not None:
            return Recognised(layout, contents)
    return None


def layouts_of(folder: Path) -> Iterator[Layout]:
    """Yield the layouts that the folder's own name, or that of what it links to, is of."""
    names = dict.fromkeys((folder.name, folder.resolve().name))
    yield from (layout for layout in LAYOUTS if any(layout.folder_name.fullmatch(name) for name in names))


def is_unfinished(name: str) -> bool:
    """Tell whether a trainer will rename or remove a folder of this name."""
    return _UNFINISHED.fullmatch(name) is not None
