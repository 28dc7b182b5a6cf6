"""Which run a person means: its whole name, or a part of it that no other run has."""

from pathlib import Path
from typing import Final

from infra.fileroot.run_directory import list_runs
from infra.store import open_store
from schemas.errors import StoreError

_SHORTEST: Final = 4
"""Letters of a part; fewer are too soon those of another run."""
_NUM_SHOWN: Final = 5


def complete_run_name(fileroot: Path, text: str) -> str:
    """Return the name of the run that has `text` in its name, else `text`: whoever looks it up says what there is.

    Raises:
        StoreError: several runs have it, or the store cannot be read.
    """
    names = {run.run_id for run in list_runs(fileroot)} | set(open_store(fileroot).run_names())
    if text in names or len(text) < _SHORTEST:
        return text
    found = sorted(name for name in names if text in name)
    if len(found) > 1:
        shown = ", ".join(found[-_NUM_SHOWN:])
        raise StoreError(f"{text!r} is part of {len(found)} runs' names; write more of one of them: {shown}")
    return found[0] if found else text
