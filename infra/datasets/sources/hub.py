"""Folders and hub ids through the `datasets` library, which is imported only when one is asked for (2.5 s).

A local folder is streamed, so that no copy of it lands in the library's cache and an edited file is never answered from
an old one. A hub dataset goes through the cache: the next run needs no network.
"""

import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from infra.datasets.cells import nearest
from infra.datasets.rows import Source, SourceRow
from schemas.errors import DatasetError
from schemas.valid_dataset import ValidDatasetConfig

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_PROBE_TIMEOUT_S: Final = 10.0
"""The library itself retries for 23 s before it says that there is no network."""


def is_hub_id(path: str) -> bool:
    """Whether a path that does not exist reads as owner/name; not so when its first part is a folder here."""
    return bool(_HUB_ID.fullmatch(path)) and not Path(path).parts[0].startswith(".") and not Path(path).parent.is_dir()


def open_folder(path: Path, config: ValidDatasetConfig) -> Source:
    """Return the rows of one split of a local folder: data files, or what `save_to_disk` wrote.

    Raises:
        DatasetError: the folder has no such split, or no data that the library can read.
    """
    saved = any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))
    rows = _saved_rows(path, config.split) if saved else _file_rows(path, config)
    return Source(rows=_numbered(str(path), rows))


def open_hub_dataset(config: ValidDatasetConfig) -> Source:
    """Return the rows of one split of a dataset on the hub.

    Raises:
        DatasetError: the hub cannot be reached, has no such dataset, configuration or split, or refuses access.
    """
    import datasets
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]  # its client may change

    path = config.path
    _require_network(path)
    try:
        name = _choose_hub_config(config, datasets.get_dataset_config_names(path))
        _check_split(path, config.split, datasets.get_dataset_split_names(path, name))
        rows = datasets.load_dataset(path, name, split=config.split)
    except (ValueError, OSError, DatasetsError, HTTPError) as exc:
        raise DatasetError(
            f"hub dataset {path!r} cannot be loaded: {exc}. Check the id; a gated or private one needs HF_TOKEN; "
            "without network, give a local file or folder"
        ) from exc
    return Source(rows=_numbered(path, cast("Iterable[Mapping[str, object]]", rows)))


def _file_rows(path: Path, config: ValidDatasetConfig) -> Iterable[Mapping[str, object]]:
    import datasets
    from datasets.exceptions import DatasetsError

    try:
        name = _choose_hub_config(config, datasets.get_dataset_config_names(str(path)))
        _check_split(str(path), config.split, datasets.get_dataset_split_names(str(path), name))
        rows = datasets.load_dataset(str(path), name, split=config.split, streaming=True)
    except (ValueError, OSError, DatasetsError) as exc:
        raise DatasetError(
            f"folder {str(path)!r} cannot be read as a dataset: {exc}. Name its files after their splits "
            "(test.jsonl, test-00000-of-00001.parquet), or set valid_dataset.path to one file"
        ) from exc
    return cast("Iterable[Mapping[str, object]]", rows)


def _saved_rows(path: Path, split: str) -> Iterable[Mapping[str, object]]:
    import datasets
    from datasets.exceptions import DatasetsError

    try:
        saved = datasets.load_from_disk(str(path))
    except (ValueError, OSError, DatasetsError) as exc:
        raise DatasetError(f"folder {str(path)!r} looks saved by `datasets` but cannot be loaded: {exc}") from exc
    if isinstance(saved, datasets.DatasetDict):
        _check_split(str(path), split, [str(name) for name in saved])
        return cast("Iterable[Mapping[str, object]]", saved[split])
    return cast("Iterable[Mapping[str, object]]", saved)


def _choose_hub_config(config: ValidDatasetConfig, names: Sequence[str]) -> str | None:
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


def _check_split(path: str, split: str, splits: Sequence[str]) -> None:
    if split not in splits:
        raise DatasetError(
            f"{path!r} has no split {split!r}{nearest(split, splits)} valid_dataset.split may be {', '.join(splits)}"
        )


def _numbered(path: str, rows: Iterable[Mapping[str, object]]) -> Iterator[SourceRow]:
    from datasets.exceptions import DatasetsError

    number = 0
    try:
        for number, values in enumerate(rows, start=1):
            yield SourceRow(number, values)
    except (ValueError, OSError, DatasetsError) as exc:
        raise DatasetError(f"{path}: cannot be read after row {number}: {exc}") from exc


def _require_network(path: str) -> None:
    """Ask the hub's front door once, unless the user said that there is none (HF_HUB_OFFLINE)."""
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return
    request = urllib.request.Request(constants.ENDPOINT, method="HEAD")  # noqa: S310  # the library's own https address
    try:
        urllib.request.urlopen(request, timeout=_PROBE_TIMEOUT_S).close()  # noqa: S310
    except urllib.error.HTTPError as exc:
        exc.close()  # it answered: the library's own request will say what is wrong
    except OSError as exc:
        raise DatasetError(
            f"{path!r} is no path here, and the hub cannot be reached from this machine ({exc}). Set "
            "valid_dataset.path to a local file or folder, or HF_HUB_OFFLINE=1 if the dataset was downloaded before"
        ) from exc
