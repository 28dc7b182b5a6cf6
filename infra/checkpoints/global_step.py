"""How far training had come: the step and epoch that a checkpoint's name or state tells."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from infra.tokenizer.files import read_optional_json
from schemas.errors import CheckpointError
from schemas.training_position import TrainingPosition

_NAMES: Final = (
    re.compile(r"epoch(?P<epoch>\d{1,15})epochstep\d+globalstep(?P<step>\d{1,15})"),
    re.compile(r"checkpoint[-_](?P<step>\d{1,15})"),
    re.compile(r"(?:best_)?global[-_]?step[-_=]?(?P<step>\d{1,15})(?:_hf)?"),
    re.compile(r"(?:iter|step|rollout)[-_=]?(?P<step>\d{1,15})"),
)
"""Folder names of AReaL, transformers/TRL, verl/DeepSpeed/OpenRLHF, and Megatron, slime or hand-written loops."""
_NUMBER: Final = re.compile(r"\d{1,15}")
"""A name that is a number, as slime's usually is: believed of the folder itself, not of those above it."""

_NUM_PARENTS: Final = 3
"""Trainers nest the weights, as in global_step_120/actor/huggingface."""


def find_position(folder: Path) -> TrainingPosition:
    """Return what the folder's name, its parents' names or trainer_state.json tell, the names before the state.

    A link such as `latest` is looked at under both of its names.
    """
    named = named_position(folder)
    state = _state(folder)
    return TrainingPosition(
        global_step=_told_step(state) if named.global_step is None else named.global_step,
        epoch=_told_epoch(state) if named.epoch is None else named.epoch,
    )


def named_position(folder: Path) -> TrainingPosition:
    """Return what the names of the folder and of those above it tell; opens no file."""
    for name in _names(folder):
        for match in (pattern.fullmatch(name) for pattern in _NAMES):
            if match is not None:
                epoch = match.groupdict().get("epoch")
                return TrainingPosition(global_step=int(match["step"]), epoch=None if epoch is None else int(epoch))
    number = _NUMBER.fullmatch(folder.name)
    return TrainingPosition(global_step=None if number is None else int(number[0]))


def _names(folder: Path) -> Iterator[str]:
    for path in dict.fromkeys((folder.absolute(), folder.resolve())):
        yield path.name
        yield from (parent.name for parent in list(path.parents)[:_NUM_PARENTS])


def _state(folder: Path) -> Mapping[str, object]:
    try:
        return read_optional_json(folder / "trainer_state.json")
    except CheckpointError:
        return {}  # the position is a label: an unreadable state says nothing about the weights


def _told_step(state: Mapping[str, object]) -> int | None:
    step = state.get("global_step")
    return step if isinstance(step, int) and not isinstance(step, bool) and step >= 0 else None


def _told_epoch(state: Mapping[str, object]) -> int | None:
    epoch = state.get("epoch")
    if isinstance(epoch, bool) or not isinstance(epoch, int | float) or not math.isfinite(epoch):
        return None
    return int(epoch) if epoch >= 0 else None
