"""Only regular files are read: a FIFO blocks its reader for ever, a device never ends."""

from pathlib import Path

from infra.files.regular_files import describe_irregular
from schemas.errors import DatasetError


def require_regular_file(path: Path) -> None:
    """Check that `path` is a regular file, or a link to one.

    Raises:
        DatasetError: it is anything else, or is not there.
    """
    try:
        kind = describe_irregular(path.stat().st_mode)
    except OSError as exc:
        raise DatasetError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    if kind is not None:
        raise DatasetError(f"{path} is {kind}, expected a regular file; set valid_dataset.path to one")
