"""The training step that a checkpoint's name or state tells."""

import re
from pathlib import Path
from typing import Final

from infra.tokenizer.files import read_optional_json
from schemas.errors import CheckpointError

_NAMES: Final = (
    re.compile(r"epoch\d+epochstep\d+globalstep(\d+)"),
    re.compile(r"checkpoint[-_](\d+)"),
    re.compile(r"global[-_]?step[-_=]?(\d+)"),
    re.compile(r"(?:iter|step)[-_=]?(\d+)"),
)
"""Folder names of AReaL, transformers/TRL, verl/DeepSpeed, and Megatron or hand-written loops."""

_NUM_PARENTS: Final = 3
"""Trainers nest the weights, as in global_step_120/actor/huggingface."""


def find_global_step(folder: Path) -> int | None:
    """Return the global step that the folder's name, its parents' names or trainer_state.json tell, else None.

    A link such as `latest` is looked at under both of its names.
    """
    for path in dict.fromkeys((folder.absolute(), folder.resolve())):
        names = [path.name, *(parent.name for parent in list(path.parents)[:_NUM_PARENTS])]
        for name in names:
            step = _step_in(name)
            if step is not None:
                return step
    try:
        state = read_optional_json(folder / "trainer_state.json").get("global_step")
    except CheckpointError:
        return None  # the step is a label: an unreadable state says nothing about the weights
    return state if isinstance(state, int) and not isinstance(state, bool) and state >= 0 else None


def _step_in(name: str) -> int | None:
    for pattern in _NAMES:
        match = pattern.fullmatch(name)
        if match is not None:
            return int(match.group(1))
    return None
