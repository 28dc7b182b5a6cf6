"""The folder that is watched: whether it can be, and what looks at it."""

import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from infra.fileroot.watch_folder import own_folders
from schemas.errors import CheckpointError
from schemas.paths import expand_user
from tasks.checkpoint.resolution import find_base, find_tokenizer
from tasks.watching.observation import Observer
from tasks.watching.settling import Evaluation


def find_root(root: Path, evaluations: Sequence[Evaluation], *, is_patient: bool) -> Path:
    """Return the root to watch, without links in it.

    Args:
        root: as the user named it.
        evaluations: the root may hold their fileroots, but not be one of the folders in them.
        is_patient: whether a root that does not exist yet is waited for, where the folder above it is there.

    Raises:
        CheckpointError: it cannot be watched.
    """
    real = Path(os.path.realpath(expand_user(root)))
    for own in chain.from_iterable(own_folders(evaluation.fileroot) for evaluation in evaluations):
        if real.is_relative_to(own):
            raise CheckpointError(
                f"{root}: lies in {own}, which is Milepost's own; name the folder that the trainer saves its "
                f"checkpoints into"
            )
    try:
        with os.scandir(real):
            pass
    except OSError as exc:
        if not (is_patient and isinstance(exc, FileNotFoundError) and real.parent.is_dir()):
            raise CheckpointError(describe_unreadable(root, exc)) from exc
    return real


def describe_unreadable(root: Path, exc: OSError) -> str:
    """Return why a root cannot be watched, and what to do."""
    if isinstance(exc, FileNotFoundError):
        return f"{root}: there is no such folder; name the folder that the trainer saves its checkpoints into"
    if isinstance(exc, NotADirectoryError):
        return f"{root}: this is a file; name the folder that the trainer saves its checkpoints into"
    return f"{root}: cannot be read ({exc.strerror}); check its permissions, and whether its file system is there"


def make_observer(root: Path, evaluation: Evaluation) -> Observer:
    """Return what looks at a root for an evaluation.

    Raises:
        CheckpointError: tokenizer_path or actor.base_path cannot be used.
    """
    config = evaluation.config
    return Observer(
        root,
        settle_s=config.watch.settle_s,
        skipped=tuple(own_folders(evaluation.fileroot)),
        tokenizer_folder=find_tokenizer(config.tokenizer_path) if config.tokenizer_path else None,
        allow_pickle_weights=config.engine.allow_pickle_weights,
        base_folder=find_base(config.actor.base_path, allow_pickle_weights=config.engine.allow_pickle_weights),
    )
