"""AReaL: `{fileroot}/checkpoints/{user}/{experiment}/{trial}/{name}/epoch{E}epochstep{S}globalstep{G}`.

areal/utils/saver.py makes the folder, empty, before anything is saved, and counts epochs and steps from 0. The FSDP
engine writes weights, configuration and tokenizer into it with save_pretrained, in this order; the Megatron engine
writes the index last but for the tokenizer; the Archon engine writes into `….tmp` and renames. None leaves a mark by
which to tell them apart, so a save is whole when it is whole by arithmetic and rests. `recover_checkpoint` beside them
is the trainer's own state, rewritten in place, and no checkpoint to evaluate.
"""

import re
from pathlib import Path
from typing import Final

from infra.checkpoints.layouts.base import Contents, Layout, never_marked


def _locate(folder: Path, _names: frozenset[str]) -> Contents:
    return Contents(folder)


AREAL: Final = Layout(
    name="areal",
    folder_name=re.compile(r"epoch\d+epochstep\d+globalstep\d+"),
    locate=_locate,
    is_marked=never_marked,
    first_step=0,
)
