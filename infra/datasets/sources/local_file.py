"""A single local file: its kind by its suffix, and what is nearest when it is not there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from infra.datasets.cells import nearest
from infra.datasets.rows import Source, SourceRow
from infra.datasets.sources.arrow_rows import read_arrow
from infra.datasets.sources.csv_records import read_csv
from infra.datasets.sources.json_document import read_json_document
from infra.datasets.sources.jsonl import read_jsonl
from infra.datasets.sources.parquet import read_parquet
from schemas.errors import DatasetError
from schemas.valid_dataset import ValidDatasetConfig

READERS: Final[dict[str, Callable[[Path], Iterator[SourceRow]]]] = {
    ".jsonl": read_jsonl,
    ".json": read_json_document,
    ".parquet": read_parquet,
    ".csv": read_csv,
    ".arrow": read_arrow,
}
"""Suffix to reader."""


def open_file(path: Path, config: ValidDatasetConfig) -> Source:
    """Return the rows of a local file.

    Raises:
        DatasetError: its suffix is not one of READERS.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(
            f"{path}: the suffix {path.suffix!r} is not one of {', '.join(READERS)}; convert the file or rename it"
        )
    notes: tuple[str, ...] = ()
    if "split" in config.model_fields_set and config.split.lower() not in path.stem.lower():
        notes = (f"valid_dataset.split={config.split!r} is not used: {path.name} is one file and is read whole",)
    return Source(rows=reader(path), notes=notes)


def missing_path_error(path: Path) -> DatasetError:
    """Return the error for a path that does not exist, with the nearest entry of the nearest folder that does."""
    folder, wanted = path.parent, path.name
    while not folder.is_dir() and folder != folder.parent:
        folder, wanted = folder.parent, folder.name
    try:
        entries = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        entries = []
    return DatasetError(
        f"dataset {str(path)!r} does not exist: there is no {wanted!r} in {folder.resolve()}{nearest(wanted, entries)} "
        "Set valid_dataset.path to a .jsonl, .json, .parquet, .csv or .arrow file, a folder, a hub id (owner/name) or "
        "reasoning_gym:<task>"
    )
