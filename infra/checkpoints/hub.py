"""Checkpoints named by a hub id: fetched into the hub client's own cache, from where they are read as a folder."""

import re
from pathlib import Path
from typing import Final

from schemas.errors import CheckpointError

_HUB_ID: Final = re.compile(r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?")

_TOKENIZER_PATTERNS: Final = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
_WEIGHT_PATTERNS: Final = ("*.safetensors",)
_PICKLE_PATTERNS: Final = ("*.bin",)


def is_hub_id(text: str) -> bool:
    """Tell whether `text` has the form `org/name` or `org/name@revision`."""
    return _HUB_ID.fullmatch(text) is not None


def find_snapshot(hub_id: str, *, revision: str | None = None) -> Path | None:
    """Return the folder of a repository's snapshot in the hub client's cache; None when there is none."""
    match = _HUB_ID.fullmatch(hub_id)
    if match is None:
        return None
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(
            snapshot_download(match["repository"], revision=match["revision"] or revision, local_files_only=True)
        )
    except (errors.LocalEntryNotFoundError, errors.HFValidationError):
        return None


def fetch_checkpoint(hub_id: str, *, allow_pickle_weights: bool = False, tokenizer_only: bool = False) -> Path:
    """Return the local folder of a hub repository's snapshot, downloading what is missing of it.

    Code in the repository is not fetched; weights are fetched as safetensors unless pickles are allowed.

    Raises:
        CheckpointError: no such repository or revision, no access, or no connection and no copy in the cache.
    """
    match = _HUB_ID.fullmatch(hub_id)
    if match is None:
        raise CheckpointError(f"{hub_id!r} is neither a folder nor a hub id of the form org/name or org/name@revision")
    from huggingface_hub import errors, snapshot_download

    patterns: list[str] = list(_TOKENIZER_PATTERNS)
    if not tokenizer_only:
        patterns += [*_WEIGHT_PATTERNS, *(_PICKLE_PATTERNS if allow_pickle_weights else ())]
    revision = match["revision"]
    try:
        return Path(snapshot_download(match["repository"], revision=revision, allow_patterns=patterns))
    except errors.GatedRepoError as exc:
        raise CheckpointError(
            f"{hub_id}: the repository is gated; ask for access on its page and set HF_TOKEN in the environment"
        ) from exc
    except errors.RevisionNotFoundError as exc:
        raise CheckpointError(f"{hub_id}: the repository has no revision {revision!r}; check the part after @") from exc
    except errors.RepositoryNotFoundError as exc:
        raise CheckpointError(
            f"{hub_id}: there is no such folder here and no such repository on the hub (or it is private: set "
            f"HF_TOKEN); check the name"
        ) from exc
    except Exception as exc:  # the client lets its transport's errors through: they all mean that nothing was fetched
        raise CheckpointError(
            f"{hub_id}: there is no such folder here, and the hub cannot be reached ({type(exc).__name__}) nor is a "
            f"copy in its cache; name a local folder, or fetch it on a machine with network (hf download "
            f"{match['repository']}) and copy the folder"
        ) from exc
