"""How a dataset is called when its configuration does not say: known from its path, before anything is opened."""

from pathlib import Path
from typing import Final

from infra.datasets.sources.local_file import READERS
from infra.datasets.sources.reasoning_gym_tasks import PREFIX, parse_path
from schemas.valid_dataset import ValidDatasetConfig

_NAMELESS: Final = frozenset({"test", "train", "validation", "valid", "val", "dev", "eval", "data"})
"""File names that say which part of a dataset it is; its folder says which dataset."""


def dataset_name(config: ValidDatasetConfig) -> str:
    """Return `valid_dataset.name`, else a name that moving the data into another folder does not change.

    Raises:
        DatasetError: a procedural path that cannot be read.
    """
    if config.name is not None:
        return config.name
    if config.path.startswith(PREFIX):
        return PREFIX + "+".join(parse_path(config.path, seed=0).tasks)
    path = Path(config.path)
    if path.suffix.lower() not in READERS:
        return path.resolve().name
    name = path.resolve().parent.name if path.stem.lower() in _NAMELESS else path.stem
    return name or path.stem


def source_kind(config: ValidDatasetConfig) -> str:
    """Return what the data is kept in: `csv`, `jsonl` and the like for one file, `other` for any other source.

    `mine.csv` and `mine.jsonl` share the name `mine` and may be different data.
    """
    suffix = Path(config.path).suffix.lower()
    return suffix.removeprefix(".") if suffix in READERS else "other"
