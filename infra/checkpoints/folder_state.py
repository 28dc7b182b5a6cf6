"""What tells, without reading a file, whether a folder still holds the checkpoint that was seen in it."""

import os
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from infra.checkpoints.layouts.base import is_weights
from infra.tokenizer.files import TOKENIZER_FILES

_MODEL_FILES: Final = TOKENIZER_FILES | {
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "hf_quant_config.json",
}
"""Files beside the weights that belong to the model's identity."""
_MODEL_SUFFIXES: Final = (".py", ".jinja")
"""Suffixes of others that do: the checkpoint's own code, named chat templates."""
_TEMPLATE_FOLDER: Final = "chat_templates"


class FolderState(NamedTuple):
    """What a folder's entries say without being read."""

    mark: str
    """Digest of the path and of the names, inodes, sizes and times of the files that decide the model."""
    weights_mark: str
    """The same of the weight files alone, by which earlier versions knew a checkpoint."""
    signature: str
    """The same of all files."""
    saved_at: datetime
    """Last change of a weight file."""
    changed_s: float
    """Last change of any file or link to it, seconds since 1970."""

    @property
    def marks(self) -> tuple[str, str]:
        """The names that the checkpoint may be known by."""
        return self.mark, self.weights_mark


def read_state(folder: Path, model: Path) -> FolderState | None:
    """Return the state of a checkpoint's folder; None while there are no weights, or when it has vanished.

    Raises:
        OSError: it cannot be read now, which tells nothing of it: look again.
    """
    model_files, weights, everything = (blake2b(os.fsencode(folder.absolute()), digest_size=16) for _ in range(3))
    saved_s = changed_s = 0.0
    try:
        entries = _list_files(model)
        if (model / _TEMPLATE_FOLDER).is_dir():
            entries += _list_files(model / _TEMPLATE_FOLDER)
        for entry in entries:
            status = entry.stat()
            line = f"\0{entry.name}\0{status.st_ino}\0{status.st_size}\0{status.st_mtime_ns}".encode(
                errors="surrogateescape"
            )
            everything.update(line)
            changed_s = max(changed_s, status.st_mtime, status.st_ctime)
            if is_weights(entry.name) or entry.name in _MODEL_FILES or entry.name.endswith(_MODEL_SUFFIXES):
                model_files.update(line)
            if is_weights(entry.name):
                weights.update(line)
                saved_s = max(saved_s, status.st_mtime)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not saved_s:
        return None
    return FolderState(
        mark=model_files.hexdigest(),
        weights_mark=weights.hexdigest(),
        signature=everything.hexdigest(),
        saved_at=datetime.fromtimestamp(saved_s, UTC),
        changed_s=changed_s,
    )


def _list_files(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as listing:
        return sorted((entry for entry in listing if entry.is_file()), key=lambda entry: entry.name)
