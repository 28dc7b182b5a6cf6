"""Datasets on the hub: the `datasets` library says which files belong to them, the hub's client caches them.

The cached snapshot is then read as a local folder is, so that both give the same items, and the next run needs no
network.
"""

import glob
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from infra.datasets.rows import Source
from infra.datasets.sources.folder import check_split, choose_hub_config, open_folder, split_files
from schemas.errors import DatasetError
from schemas.valid_dataset import ValidDatasetConfig

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_ADDRESS: Final = re.compile(r"hf://datasets/[^/]+/[^/]+@[^/]+/(?P<file>.+)")
_CARD: Final = ("README.md", ".huggingface.yaml", "dataset_infos.json")
"""Files that say which data files belong to which split."""
_PROBE_TIMEOUT_S: Final = 10.0
"""The library itself retries for 23 s before it says that there is no network."""


def is_hub_id(path: str) -> bool:
    """Whether a path that does not exist reads as owner/name; not so when its first part is a folder here."""
    return bool(_HUB_ID.fullmatch(path)) and not Path(path).parts[0].startswith(".") and not Path(path).parent.is_dir()


def open_hub_dataset(config: ValidDatasetConfig) -> Source:
    """Return the rows of one split of a dataset on the hub.

    Raises:
        DatasetError: the hub cannot be reached, has no such dataset, configuration or split, or refuses access.
    """
    from datasets.exceptions import DatasetsError
    from huggingface_hub import constants
    from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]  # its client may change

    try:
        snapshot = _find_snapshot(config.path) if constants.is_offline_mode() else _fetch_snapshot(config)
    except (ValueError, OSError, DatasetsError, HTTPError) as exc:
        raise DatasetError(
            f"hub dataset {config.path!r} cannot be loaded: {exc}. Check the id; a gated or private one needs "
            "HF_TOKEN; without network, give a local file or folder"
        ) from exc
    return open_folder(snapshot, config)


def _fetch_snapshot(config: ValidDatasetConfig) -> Path:
    """Download the data files of the configuration and what describes them; return their folder in the cache."""
    import datasets
    from huggingface_hub import snapshot_download

    _require_network(config.path)
    name = choose_hub_config(config, datasets.get_dataset_config_names(config.path))
    files = split_files(datasets.load_dataset_builder(config.path, name))
    check_split(config.path, config.split, list(files))
    # All splits: without the files of the others the library does not resolve this one in the folder.
    matches = [_ADDRESS.fullmatch(address) for addresses in files.values() for address in addresses]
    wanted = [glob.escape(match["file"]) for match in matches if match]
    return Path(snapshot_download(config.path, repo_type="dataset", allow_patterns=[*_CARD, *wanted]))


def _find_snapshot(path: str) -> Path:
    """Return the folder of a dataset that was downloaded before.

    Raises:
        OSError: there is none.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError
    from huggingface_hub.file_download import repo_folder_name

    try:
        return Path(snapshot_download(path, repo_type="dataset", local_files_only=True))
    except LocalEntryNotFoundError:
        # the `datasets` library keeps snapshots by commit and notes no branch
        cached = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=path, repo_type="dataset") / "snapshots"
        snapshots = sorted(cached.glob("*"), key=lambda folder: folder.stat().st_mtime)
        if not snapshots:
            raise
        return snapshots[-1]


def _require_network(path: str) -> None:
    """Ask the hub's front door once."""
    from huggingface_hub import constants

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
