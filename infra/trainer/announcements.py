"""What a trainer says about a checkpoint that it has saved: one small file below the root of the checkpoints.

    {root}/.milepost/landed/{digest of the path}.json

Owns the folder and its files. A trainer writes them, so the standard library is all that this module needs. Whoever
watches the root learns from a file which checkpoint is whole, at once and without reading it.
"""

import json
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from types import NoneType
from typing import Final

from infra.files.atomic import write_text_atomically

SPOOL: Final = Path(".milepost", "landed")
"""Below the root of the checkpoints."""

_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "path": (str,),
    "global_step": (int, NoneType),
    "epoch": (int, NoneType),
    "announced_at": (int, float),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A checkpoint that is whole, in the words of its trainer."""

    path: str
    """Its folder, absolute."""
    global_step: int | None
    """Training step; None when unknown."""
    epoch: int | None
    """Training epoch, from 0; None when unknown."""
    announced_at: float
    """When, in seconds since 1970."""


def write_announcement(root: Path, announcement: Announcement) -> Path:
    """Put an announcement below `root`; one of the same checkpoint is replaced.

    Raises:
        OSError, StoreError: the disk refused.
    """
    spool = root / SPOOL
    spool.mkdir(parents=True, exist_ok=True)
    name = blake2b(announcement.path.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    path = spool / f"{name}.json"
    write_text_atomically(path, json.dumps(asdict(announcement)) + "\n")
    return path


def read_announcements(root: Path) -> list[Announcement]:
    """Return what was announced below `root`, the oldest first; files that are no announcements are passed over."""
    found = [_read(path) for path in (root / SPOOL).glob("*.json")]
    return sorted(filter(None, found), key=lambda one: one.announced_at)


def _read(path: Path) -> Announcement | None:
    try:
        fields = json.loads(path.read_bytes())
        if not all(isinstance(fields[name], kinds) for name, kinds in _KINDS.items()):
            return None
        return Announcement(**fields)
    except (OSError, ValueError, TypeError, LookupError):
        return None
