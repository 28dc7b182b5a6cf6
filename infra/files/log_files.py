"""The ends of files that other processes write for people."""

from pathlib import Path
from typing import Final

_TAIL_LINES: Final = 15
_TAIL_BYTES: Final = 16_384


def read_end(path: Path, num_bytes: int) -> str:
    """Return the last `num_bytes` of a text file at most; what is no UTF-8 becomes a replacement character.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - num_bytes))
        return file.read().decode("utf-8", "replace")


def end_or_nothing(path: Path, num_bytes: int) -> str:
    """Return what `read_end` does, and of a file that cannot be read the empty text."""
    try:
        return read_end(path, num_bytes)
    except OSError:
        return ""


def log_tail(path: Path) -> str:
    """Return the last lines of a log; a note when it cannot be read."""
    try:
        text = read_end(path, _TAIL_BYTES)
    except OSError as exc:
        return f"(the log cannot be read: {exc})"
    # of a progress bar, which redraws its line after a carriage return, the last state
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    lines = [line for line in shown if line.strip()]
    return "\n".join(f"    {line[:400]}" for line in lines[-_TAIL_LINES:]) or "(the log is empty)"
