"""How far training had come: the step and epoch that a checkpoint's name or state tells."""

import math
import re
from collections.abc import Iterator, Mapping
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
_EPOCH: Final = re.compile(r"epoch(\d+)epochstep\d+globalstep\d+")

_NUM_PARENTS: Final = 3
"""Trainers nest the weights, as in global_step_120/actor/huggingface."""


def find_global_step(folder: Path) -> int | None:
    """Return the global step that the folder's name, its parents' names or trainer_state.json tell, else None.

    A link such as `latest` is looked at under both of its names.
    """
    named = next((step for name in _names(folder) if (step := _step_in(name)) is not None), None)
    if named is not None:
        return named
    state = _state(folder).get("global_step")
    return state if isinstance(state, int) and not isinstance(state, bool) and state >= 0 else None


def find_epoch(folder: Path) -> int | None:
    """Return the epoch, from 0, that a folder name of AReaL's or trainer_state.json tells, else None."""
    named = next((match for name in _names(folder) if (match := _EPOCH.fullmatch(name)) is not None), None)
    if named is not None:
        return int(named[1])
    state = _state(folder).get("epoch")
    if isinstance(state, bool) or not isinstance(state, int | float) or not math.isfinite(state):
        return None
    return int(state) if state >= 0 else None


def _names(folder: Path) -> Iterator[str]:
    for path in dict.fromkeys((folder.absolute(), folder.resolve())):
        yield path.name
        yield from (parent.name for parent in list(path.parents)[:_NUM_PARENTS])


def _state(folder: Path) -> Mapping[str, object]:
    try:
        return read_optional_json(folder / "trainer_state.json")
    except CheckpointError:
        return {}  # the position is a label: an unreadable state says nothing about the weights


def _step_in(name: str) -> int | None:
    for pattern in _NAMES:
        match = pattern.fullmatch(name)
        if match is not None:
            return int(match.group(1))
    return None
