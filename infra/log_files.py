"""The ends of files that other processes write for people."""

from pathlib import Path


def read_end(path: Path, num_bytes: int) -> str:
    """Return the last `num_bytes` of a text file at most; what is no UTF-8 becomes a replacement character.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - num_bytes))
        return file.read().decode("utf-8", "replace")
