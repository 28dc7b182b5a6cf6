"""Warnings of a watcher about what it cannot read or evaluate: each is logged once."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from schemas.errors import StoreError
from tasks.watching.observation import Observation

_UNREADABLE_S: Final = 300.0
"""Seconds between two warnings that the root cannot be read."""

logger = logging.getLogger(__name__)


class WatchWarnings:
    """The warnings of one watcher: each is logged once."""

    def __init__(self, root: Path) -> None:
        """Take the folder that is watched."""
        self._root = root
        self._warned: set[tuple[Path, str]] = set()
        self._broken: set[str] = set()
        self._unusable: set[Path] = set()
        self._unreadable_at = -_UNREADABLE_S

    @property
    def num_unusable(self) -> int:
        """Checkpoints that at the last look could not be evaluated and had rested, by one evaluation or more."""
        return len(self._unusable)

    @property
    def num_broken(self) -> int:
        """Files that could not be read: with one of them a watcher must not end well."""
        return len(self._broken)

    def warn_of_broken(self, exc: StoreError) -> None:
        """Warn once of a file of the fileroot that holds up its checkpoint, and no other."""
        if str(exc) not in self._broken:
            self._broken.add(str(exc))
            logger.warning("%s", exc)

    def warn_of_unreadable(self, problem: str) -> None:
        """Warn every few minutes that the root cannot be read."""
        if time.monotonic() - self._unreadable_at >= _UNREADABLE_S:
            self._unreadable_at = time.monotonic()
            logger.warning("%s; until then there is nothing to do", problem)

    def warn_of_unusable(self, looks: Sequence[Observation]) -> None:
        """Warn of what cannot be evaluated as it is, once its trainer writes no more: until then it may become whole.

        `looks`: one per evaluation, made at one time.
        """
        stuck = [one for seen in looks for one in seen.pending if one.has_rested]
        self._unusable = {one.found.folder for one in stuck}
        for one in stuck:
            ailment = "cannot be evaluated as it is" if one.state == "unusable" else "is incomplete and changes no more"
            self._warn(one.found.folder, f"{ailment}: {one.detail}")

    def warn_of_empty(self, looks: Sequence[Observation]) -> None:
        """Warn where the root has no checkpoint in it."""
        if not any(seen.num_found for seen in looks):
            words = "has no checkpoint in it yet; if its trainer has saved one, name the folder that it saves into"
            self._warn(self._root, words)

    def _warn(self, folder: Path, words: str) -> None:
        if (folder, words) not in self._warned:
            self._warned.add((folder, words))
            logger.warning("%s %s", folder, words)
