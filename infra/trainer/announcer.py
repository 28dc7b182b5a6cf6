"""CheckpointAnnouncer: a trainer's word that a checkpoint is whole, given without making training wait.

Owns to whom it is told: whoever watches the root, by a file, and on request a Prefect server. A trainer imports it, so
the standard library is all that it needs.
"""

import json
import logging
import time
from contextlib import suppress
from errno import ENOENT
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid5

from infra.prefect_server.http_api import PrefectApi, find_api, post_event
from infra.text.plain_text import to_plain_line, to_title
from infra.trainer.announcements import Announcement, write_announcement
from infra.trainer.outbox import Outbox
from infra.trainer.ranks import is_first_rank
from schemas.errors import ConfigError
from schemas.paths import expand_user

AREAL_FOLDER: Final = "epoch{epoch}epochstep{step}globalstep{global_step}"
"""How AReaL names a checkpoint's folder."""
_WEIGHTS: Final = (".safetensors", ".bin")
"""How the names of files with weights end."""
_POSTED: Final = Path(".milepost", "posted")
"""Below the root of the checkpoints: an empty file per event that the server has taken, under its id."""

logger = logging.getLogger(__name__)


class CheckpointAnnouncer:
    """Says which checkpoints of one root are whole.

    `announce` returns within a fraction of a millisecond and raises nothing: files and requests are made by other
    threads. What cannot be delivered is dropped with one line in the log per cause; a watcher finds the checkpoint even
    so, only later.
    """

    def __init__(
        self, root: Path | str, *, folder: str = "checkpoint-{global_step}", posts_events: bool = False
    ) -> None:
        """Take where checkpoints are and who is told.

        Args:
            root: Folder that they are saved into, and that `milepost watch` watches.
            folder: Name of a checkpoint's folder by {epoch}, {step} (of the epoch) and {global_step}. The default is
                that of transformers; `AREAL_FOLDER` that of AReaL.
            posts_events: Whether the Prefect server at PREFECT_API_URL is told too, whose deployment
                `evaluate-on-landing` then evaluates the checkpoint: for a root that nobody watches.

        Raises:
            ConfigError: `folder` names anything else.
        """
        self.root: Final = absolute_folder(root)
        """Folder that checkpoints are saved into."""
        self._folder = _checked_folder(folder)
        # One outbox per destination: a server that hangs does not hold up the files.
        self._files = Outbox[Announcement]("announcement of a checkpoint", partial(_write, self.root))
        api = find_api() if posts_events else None
        self._events = (
            None if api is None else Outbox[Announcement]("event about a checkpoint", partial(_post, api, self.root))
        )
        if posts_events and api is None and is_first_rank():
            logger.warning("milepost: posts_events: no Prefect server is told, as PREFECT_API_URL holds no http(s) URL")

    def announce(self, path: Path | str, *, global_step: int | None = None, epoch: int | None = None) -> None:
        """Say that a checkpoint is whole; on ranks other than the first, nothing.

        Args:
            path: Its folder.
            global_step: Training step; None when unknown.
            epoch: Training epoch, from 0; None when unknown.
        """
        if not is_first_rank():
            return
        folder = str(absolute_folder(path))
        announcement = Announcement(path=folder, global_step=global_step, epoch=epoch, announced_at=time.time())
        self._files.put(announcement)
        if self._events is not None:
            self._events.put(announcement)

    def announce_step(self, epoch: int, step: int, global_step: int) -> None:
        """Say that the checkpoint of a step is whole: the one that `folder` names."""
        name = self._folder.format(epoch=epoch, step=step, global_step=global_step)
        self.announce(self.root / name, global_step=global_step, epoch=epoch)

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that was announced has been delivered or dropped; return whether it was within `timeout_s`."""
        return self._files.drain(timeout_s) and (self._events is None or self._events.drain(timeout_s))


def areal_root(fileroot: str, experiment_name: str, trial_name: str) -> Path:
    """Return where AReaL's Saver (areal/utils/saver.py) puts the checkpoints of the model that is trained."""
    return Path(fileroot, "checkpoints", getuser(), experiment_name, trial_name, "default")


def absolute_folder(path: Path | str) -> Path:
    """Return where a folder is, whatever becomes of this process's own."""
    return expand_user(path).absolute()


def _checked_folder(folder: str) -> str:
    try:
        folder.format(epoch=0, step=0, global_step=0)
    except (KeyError, IndexError, ValueError) as exc:
        raise ConfigError(
            f"folder may hold {{epoch}}, {{step}} and {{global_step}}, got {folder!r}; name a checkpoint's folder as "
            "the trainer does"
        ) from exc
    return folder


def _write(root: Path, announcement: Announcement) -> None:
    _require_folder(announcement)
    write_announcement(root, announcement)


def _require_folder(announcement: Announcement) -> None:
    """Raise FileNotFoundError where nothing was saved: looked at here, as a network disk may take its time."""
    if not Path(announcement.path).is_dir():
        reason = "there is no such checkpoint; save it before it is announced, or name the folder as the trainer does"
        raise FileNotFoundError(ENOENT, reason, announcement.path)


def _post(api: PrefectApi, root: Path, announcement: Announcement) -> None:
    """Emit the event of schemas.events.CheckpointLanded, whose module needs what a trainer may not have; once."""
    _require_folder(announcement)
    event_id = _event_id(announcement)
    posted = root / _POSTED / str(event_id)
    if posted.exists():  # the server itself remembers an id for half an hour
        return
    step = "" if announcement.global_step is None else f" of step {announcement.global_step}"
    message = f"The trainer has saved the checkpoint{step}."
    name = to_plain_line(announcement.path)
    payload = {
        "checkpoint": announcement.path,
        "global_step": announcement.global_step,
        "message": message,
        "since": "",
        "link": "",
        "weight_digest": None,
        "announced_by": "trainer",
        "title": to_title("Checkpoint landed", announcement.path),
        "text": f"{message}\ncheckpoint: {name}",
    }
    resource = {"prefect.resource.id": f"milepost.checkpoint.{announcement.path}", "milepost.alert": "send"}
    post_event(api, "milepost.checkpoint.landed", event_id=event_id, resource=resource, payload=payload)
    with suppress(OSError):
        posted.parent.mkdir(parents=True, exist_ok=True)
        posted.touch()


def _event_id(announcement: Announcement) -> UUID:
    """Return the same for the same save, whoever announces it again, and another once its weights were rewritten."""
    weights = [
        (str(path), (status := path.stat()).st_size, status.st_mtime_ns)
        for path in sorted(Path(announcement.path).rglob("*"))
        if path.suffix in _WEIGHTS
    ]
    return uuid5(NAMESPACE_URL, json.dumps([announcement.path, announcement.global_step, *weights]))
