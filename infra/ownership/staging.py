"""Hidden folders in which publishers prepare files before renaming them into the store.

Owns who may use a folder and when a dead one is removed; knows nothing of tables. A folder names the process that made
it: what one of this machine left when it was killed is removed by the next publisher, what one of another machine left
after a week. File locks are not used, as network file systems pretend to have them.
"""

import os
import secrets
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from infra.machine.processes import identify_process, is_alive
from schemas.processes import ProcessIdentity

_OWNER: Final = "owner.json"
_REMOVED: Final = ".removed-"
"""Start of the name of a folder that is being removed; one that was killed over it leaves it to the next."""
_ABANDONED_AFTER_S: Final = 7 * 24 * 3600.0
"""Age from which a folder goes whose maker cannot be seen from here, or died before it wrote its name."""


@contextmanager
def staging_folder(parent: Path) -> Generator[Path]:
    """Make a folder inside `parent` that is this caller's alone; it is removed at the end, whatever happened.

    Raises:
        OSError: the folder cannot be made.
    """
    folder = parent / f"{os.getpid()}-{secrets.token_hex(6)}"
    folder.mkdir(parents=True)
    try:
        owner = identify_process(os.getpid())
        if owner is not None:
            (folder / _OWNER).write_text(owner.model_dump_json(), "utf-8")
        yield folder
    finally:
        _remove(folder)


def remove_abandoned(parent: Path, *, now: float | None = None) -> int:
    """Remove what dead publishers left in `parent` and return how many folders that were; never raises.

    Args:
        parent: where `staging_folder` makes its folders; it need not exist.
        now: Unix time in seconds; None for the clock's.
    """
    removed = 0
    try:
        folders = [folder for folder in parent.iterdir() if folder.is_dir()]
    except OSError:
        return 0  # nobody has staged anything yet
    for folder in folders:
        with suppress(FileNotFoundError):  # its maker, or another publisher, was quicker
            if folder.name.startswith(_REMOVED):
                shutil.rmtree(folder, ignore_errors=True)
            elif _is_abandoned(folder, time.time() if now is None else now):
                removed += _remove(folder)
    return removed


def _remove(folder: Path) -> bool:
    """Remove a folder that nobody uses any more; return whether it is gone.

    It gets a name that says so first: without its owner's file, half a folder would pass for one just made.
    """
    with suppress(OSError):  # removed by another publisher, or on a disk that refuses
        folder = folder.rename(folder.with_name(_REMOVED + folder.name))
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _is_abandoned(folder: Path, now: float) -> bool:
    is_old = now - folder.stat().st_mtime > _ABANDONED_AFTER_S
    try:
        alive = is_alive(ProcessIdentity.model_validate_json((folder / _OWNER).read_bytes()))
    except (OSError, ValidationError):
        return is_old  # its maker has not written its name yet, or died over it
    return is_old if alive is None else not alive
