"""CheckpointAnnouncer: a trainer's word that a checkpoint is whole, given without making training wait.

Owns to whom it is told: whoever watches the root, by a file, and a Prefect server where PREFECT_API_URL names one. A
trainer imports it, so the standard library is all it needs.
"""

import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

from infra.announcements import Announcement, write_announcement
from infra.outbox import Outbox
from infra.prefect_api import PrefectApi, find_api, post_event
from infra.ranks import is_first_rank

SAVED_EVENT: Final = "milepost.checkpoint.saved"
"""That a trainer has saved a checkpoint. `landed`, by which evaluations start, comes from whoever found it whole."""


class CheckpointAnnouncer:
    """Says which checkpoints of one root are whole.

    `announce` returns within a fraction of a millisecond and raises nothing: files and requests are made by other
    threads. What cannot be delivered is dropped with one line in the log per cause; a watcher finds the checkpoint even
    so, only later.
    """

    def __init__(self, root: Path | str) -> None:
        """`root`: the folder that the checkpoints are saved into."""
        self._root = Path(root).expanduser().absolute()
        # One outbox per destination: a server that hangs does not hold up the files.
        self._files = Outbox[Announcement]("announcement of a checkpoint", partial(write_announcement, self._root))
        api = find_api()
        self._events = None if api is None else Outbox[Announcement]("event about a checkpoint", partial(_post, api))

    def announce(
        self, path: Path | str | None = None, *, global_step: int | None = None, epoch: int | None = None
    ) -> None:
        """Say that a checkpoint is whole; on ranks other than the first, nothing.

        Args:
            path: Its folder; None for the one of that step below the root.
            global_step: Training step.
            epoch: Training epoch, from 0.
        """
        if not is_first_rank():
            return
        folder = None if path is None else str(Path(path).expanduser().absolute())
        announcement = Announcement(path=folder, global_step=global_step, epoch=epoch, announced_at=time.time())
        self._files.put(announcement)
        if self._events is not None:
            self._events.put(announcement)

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that was announced has been delivered or dropped; return whether it was within `timeout_s`."""
        return self._files.drain(timeout_s) and (self._events is None or self._events.drain(timeout_s))


def _post(api: PrefectApi, announcement: Announcement) -> None:
    resource = f"milepost.checkpoint.{announcement.path or announcement.global_step}"
    post_event(api, SAVED_EVENT, resource=resource, payload=asdict(announcement))
