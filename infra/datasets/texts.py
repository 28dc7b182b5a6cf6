"""Every text of a dataset, whatever its columns mean: what training data is searched by."""

from collections.abc import Iterator
from typing import NamedTuple, cast

from infra.datasets.conversation import problem_text
from infra.datasets.loading import load_candidates, open_source
from infra.datasets.sources.reasoning_gym_tasks import PREFIX
from schemas.errors import DatasetError
from schemas.valid_dataset import ValidDatasetConfig


class RowText(NamedTuple):
    """One text of a row; a row may hold several."""

    row: int
    """From 1."""
    text: str


def read_texts(path: str, *, split: str, seed: int) -> Iterator[RowText]:
    """Yield the texts of all rows, those inside lists and objects too.

    Args:
        path: As `valid_dataset.path`.
        split: Which split of a folder or hub dataset.
        seed: Seed of procedural tasks whose path has none.

    Raises:
        DatasetError: the source cannot be read, is empty, or has a row that cannot be read.
    """
    if path.startswith(PREFIX):
        config = ValidDatasetConfig(path=path)
        yield from (RowText(row, problem_text(item)) for row, item in enumerate(load_candidates(config, seed=seed), 1))
        return
    num_rows = 0
    for row in open_source(ValidDatasetConfig(path=path, split=split)).rows:
        num_rows += 1
        if row.problem:
            raise DatasetError(f"{path}: row {row.number} cannot be read: {row.problem}")
        for value in row.values.values():
            if isinstance(value, str):
                yield RowText(row.number, value)
            else:
                yield from (RowText(row.number, text) for text in _texts(value))
    if not num_rows:
        raise DatasetError(f"{path}: the dataset is empty, expected at least one row")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast("dict[object, object]", value).values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[object]", value):
            yield from _texts(inner)
