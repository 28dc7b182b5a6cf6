"""A local folder: the `datasets` library says which files belong to the split, our own readers read them.

The library's readers change values: `NA` becomes null, `001` a number, a date a timestamp, an integer a float.
One reader per format makes a folder the same dataset as its single file. The library is imported only when a folder is
asked for (2.5 s).
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from infra.datasets.cells import nearest
from infra.datasets.rows import Source, SourceRow
from infra.datasets.sources.arrow_rows import BATCH_ROWS, number_rows
from infra.datasets.sources.local_file import READERS
from infra.datasets.sources.regular_file import require_regular_file
from schemas.errors import DatasetError
from schemas.valid_dataset import ValidDatasetConfig

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

_NO_OPTIONS: Final = frozenset({"name", "version", "data_dir", "data_files", "description", "features"})
"""Fields of a configuration that do not say how a file is read. `features` says how the library would convert what it
read; the file's own values are kept."""
_PART: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})(?!\d)")
"""Names of the files that a split is divided into, as `test-00000-of-00003.parquet`."""
_SAVED: Final = ("dataset_dict.json", "state.json")
"""What `save_to_disk` leaves in a folder."""


def open_folder(path: Path, config: ValidDatasetConfig) -> Source:
    """Return the rows of one split of a local folder: data files, or what `save_to_disk` wrote.

    Raises:
        DatasetError: the folder has no such split, or a file of it is of no kind that is read.
    """
    _require_plain_entries(path)
    if any((path / name).is_file() for name in _SAVED):
        return Source(rows=_saved_rows(path, config.split))
    return Source(rows=_file_rows(find_split_files(path, config)))


def find_split_files(path: Path, config: ValidDatasetConfig) -> list[Path]:
    """Return the data files of a split, in order.

    Raises:
        DatasetError: as `open_folder`.
    """
    import datasets
    from datasets.exceptions import DatasetsError

    try:
        name = choose_hub_config(config, datasets.get_dataset_config_names(str(path)))
        builder = datasets.load_dataset_builder(str(path), name)
    except (ValueError, OSError, DatasetsError) as exc:
        raise DatasetError(
            f"folder {str(path)!r} cannot be read as a dataset: {exc}. Name its files after their splits "
            "(test.jsonl, test-00000-of-00001.parquet), or set valid_dataset.path to one file"
        ) from exc
    files = split_files(builder)
    check_split(str(path), config.split, list(files))
    found = [Path(file) for file in files[config.split]]
    other = next((file for file in found if file.suffix.lower() not in READERS), None)
    if other is not None:
        raise DatasetError(
            f"{other} belongs to the split {config.split!r}, and its suffix {other.suffix!r} is not one of "
            f"{', '.join(READERS)}; convert it (decompress it), or set valid_dataset.path to one file"
        )
    _refuse_options(path, builder)
    _require_all_parts(found)
    return found


def split_files(builder: "datasets.DatasetBuilder") -> dict[str, list[str]]:
    """Return the data files by split, as the library resolves them: local paths, or hf:// addresses."""
    files = cast("dict[str, list[str]]", builder.config.data_files or {})
    return {str(split): [str(file) for file in names] for split, names in files.items()}


def choose_hub_config(config: ValidDatasetConfig, names: Sequence[str]) -> str | None:
    """Return which configuration of a dataset to read; None where it has none.

    Raises:
        DatasetError: there is no such configuration, or several and none is named.
    """
    if config.hub_config is not None:
        if config.hub_config in names:
            return config.hub_config
        raise DatasetError(
            f"{config.path!r} has no configuration {config.hub_config!r}{nearest(config.hub_config, names)} "
            f"valid_dataset.hub_config may be {', '.join(names)}"
        )
    if len(names) <= 1:
        return names[0] if names else None
    for usual in ("default", "main"):
        if usual in names:
            return usual
    raise DatasetError(
        f"{config.path!r} has several configurations; set valid_dataset.hub_config to {', '.join(names)}"
    )


def check_split(path: str, split: str, splits: Sequence[str]) -> None:
    """Check that a split is there. Raises DatasetError with the splits that are."""
    if split not in splits:
        raise DatasetError(
            f"{path!r} has no split {split!r}{nearest(split, splits)} valid_dataset.split may be {', '.join(splits)}"
        )


def _require_plain_entries(path: Path) -> None:
    """Refuse a FIFO or device in the folder: the library opens README.md and the like without looking.

    A link to nowhere is left to the reader: git-annex and DVC leave them for the files that are not wanted.
    """
    try:
        entries = [
            entry for pattern in ("*", "*/*") for entry in path.glob(pattern) if entry.exists() and not entry.is_dir()
        ]
    except OSError as exc:
        raise DatasetError(f"folder {str(path)!r} cannot be looked at: {exc}") from exc
    for entry in entries:
        require_regular_file(entry)


def _require_all_parts(files: Sequence[Path]) -> None:
    """Refuse a split of which some files are not there, as after a copy or download that was stopped."""
    parts: defaultdict[tuple[Path, str, int], set[int]] = defaultdict(set)
    for file in files:
        match = _PART.match(file.name)
        if match is not None:
            parts[file.parent, match["stem"], int(match["total"])].add(int(match["number"]))
    for (folder, stem, total), numbers in parts.items():
        first = 1 if total in numbers else 0
        missing = sorted(set(range(first, first + total)) - numbers)
        if missing:
            raise DatasetError(
                f"{folder}: {len(missing)} of the {total} files of the split are missing, the first is "
                f"{stem}-{missing[0]:05d}-of-{total:05d}; copy or download them too, or set valid_dataset.path to one "
                f"file"
            )


def _refuse_options(path: Path, builder: "datasets.DatasetBuilder") -> None:
    """Refuse a README.md that says how files are read (`sep: ";"`, `field: rows`): the readers do not know it."""
    usual = type(builder.config)()
    for field in fields(builder.config):
        value = getattr(builder.config, field.name)
        if field.name not in _NO_OPTIONS and value != getattr(usual, field.name):
            raise DatasetError(
                f"README.md of {str(path)!r} sets {field.name}={value!r} for its data files, which is not supported; "
                "convert the file, or set valid_dataset.path to it if it reads without"
            )


def _file_rows(files: Sequence[Path]) -> Iterator[SourceRow]:
    """Yield the rows of the files one after the other; a second file's numbers follow those of the first."""
    before = 0
    for file in files:
        number = 0
        for row in READERS[file.suffix.lower()](file):
            number = row.number
            yield row._replace(number=before + number)
        before += number


def _saved_rows(path: Path, split: str) -> Iterator[SourceRow]:
    import datasets
    from datasets.exceptions import DatasetsError

    try:
        saved = datasets.load_from_disk(str(path))
    except (ValueError, OSError, DatasetsError) as exc:
        raise DatasetError(f"folder {str(path)!r} looks saved by `datasets` but cannot be loaded: {exc}") from exc
    if isinstance(saved, datasets.DatasetDict):
        check_split(str(path), split, [str(name) for name in saved])
        saved = saved[split]
    tables = saved.with_format("arrow").iter(batch_size=BATCH_ROWS)
    yield from number_rows((batch for table in tables for batch in cast("pa.Table", table).to_batches()), path, "Arrow")
