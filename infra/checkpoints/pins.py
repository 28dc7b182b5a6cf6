"""Pins: hard links that keep a checkpoint's weights under an evaluation while the trainer rotates its folders.

A pin is {pin_root}/{digest of the source path}-{unique}/ with the model's folder inside, the record pin.json and the
file `lock`, which its owner holds locked for as long as it lives: a pin whose lock is free was left by a killed run.
A hard link keeps the bytes of a removed or replaced file; it does not keep those of a file rewritten in place, which is
what `verify_pin` finds. Small files are copied, so that even a rewrite in place does not reach them.
"""

import errno
import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.atomic import write_text_atomically
from infra.checkpoints.digests import FileMark, mark_file
from infra.tokenizer.files import TOKENIZER_FILES
from schemas.base import Model
from schemas.checkpoint import CheckpointReport
from schemas.errors import CheckpointError, StoreError

LEFTOVER_LIFE_S: Final = 7 * 86_400.0
"""A killed run's pin serves its resumption for a week; then the disk is worth more."""

_LINK_REFUSED: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})
"""What os.link says where hard links cannot be: another file system, none of its own, or files of another user."""

_COMPANION_SUFFIXES: Final = frozenset({".json", ".jinja", ".txt", ".model", ".tiktoken", ".py"})
"""What an engine may read beside weights; optimizer states are left to the trainer's rotation."""

_RECORD: Final = "pin.json"
_LOCK: Final = "lock"

_held_locks: dict[Path, int] = {}
"""Descriptors of the locks that this process holds, by pin folder. A POSIX lock is lost with the first descriptor of
its file that closes, so a lock file is opened once and kept here."""

_log = logging.getLogger(__name__)


class PinRecord(Model):
    """pin.json: what a pin was made of."""

    source: Path
    """The checkpoint folder, absolute."""
    folder: str
    """Name of the model's folder inside the pin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The folder to evaluate and what it consisted of when it was pinned."""

    folder: Path
    """Where the engine loads from: a folder of the pin."""
    source: Path
    """The checkpoint as named."""
    pinned: bool
    """Whether the weights outlive the trainer's rotation."""
    reason: str | None
    """Why they do not; None when they do."""
    marks: dict[Path, FileMark]
    """Every weight file with its size and times."""


def pin_checkpoint(report: CheckpointReport, pin_root: Path, *, tokenizer_folder: Path | None = None) -> Pin:
    """Link the checkpoint's weights, and copy its small files, into a folder of its own under `pin_root`.

    Where hard links cannot be made (another file system, or not allowed) the weights are symbolic links, which protect
    nothing: the result says so, and `verify_pin` finds a removal. A copy of the weights would take too long. Tokenizer
    and chat template are those of `tokenizer_folder` where one is given, so that an engine finds them with the weights.

    Raises:
        CheckpointError: a file vanished while it was being pinned.
        StoreError: `pin_root` cannot be written.
    """
    source = report.path.absolute()
    place = _make_place(pin_root.absolute(), source)
    folder = place / (source.name or "checkpoint")
    try:
        folder.mkdir()
        _copy_companions(report, folder, tokenizer_folder)
        reason = _link_weights(report, folder)
        pin = Pin(folder=folder, source=source, pinned=reason is None, reason=reason, marks=_marks(report, folder))
        if pin.pinned:
            # Last: a pin with a record is whole.
            record = PinRecord(source=source, folder=folder.name)
            write_text_atomically(place / _RECORD, record.model_dump_json())
    except FileNotFoundError as exc:
        _remove(place)
        raise CheckpointError(
            f"{source}: {exc.filename} vanished while it was being pinned; the trainer removed or replaced it: name a "
            f"checkpoint that is kept, or try again"
        ) from exc
    except OSError as exc:
        _remove(place)
        raise StoreError(
            f"{pin_root}: cannot hold a pin of {source} ({exc.strerror or exc}); free space there, make it writable or "
            f"point cluster.fileroot elsewhere"
        ) from exc
    except BaseException:
        _remove(place)
        raise
    return pin


def verify_pin(pin: Pin) -> None:
    """Check that the weights are still the bytes that were pinned.

    Raises:
        CheckpointError: a weight file was rewritten in place, or (unpinned) removed or replaced, since then.
    """
    for path, mark in pin.marks.items():
        try:
            now = mark_file(path)
        except OSError as exc:
            raise CheckpointError(
                f"{path}: not there any more ({exc.strerror}); the samples were made while it was removed: evaluate a "
                f"checkpoint that is kept"
            ) from exc
        if now != mark:
            raise CheckpointError(
                f"{path}: was rewritten during the evaluation ({mark.size_bytes:,} bytes then, {now.size_bytes:,} now, "
                f"changed {(now.mtime_ns - mark.mtime_ns) / 1e9:.3f} s later): the samples are of no one model; let "
                f"the trainer save to a new folder each time, and evaluate again"
            )


def release_pin(pin: Pin) -> None:
    """Remove the pin's folder; the checkpoint itself is never touched. Releasing twice is harmless."""
    _remove(pin.folder.parent)


def release_leftover_pins(pin_root: Path, source: Path, *, now_s: float | None = None) -> int:
    """Remove the pins that killed runs left of `source`, and those of any source older than a week.

    Pins of runs that live, on this machine or on another that shares the file system, are locked and stay. Returns the
    number removed.
    """
    own = source_digest(source.absolute())
    num_removed = 0
    for place in _pin_folders(pin_root):
        is_own = place.name.startswith(f"{own}-")
        try:
            age_s = (time.time() if now_s is None else now_s) - place.stat().st_mtime
        except OSError:
            continue  # another run released it first
        if (is_own or age_s > LEFTOVER_LIFE_S) and _lock(place):
            _log.info("released the pin %s, left by a run that was killed", place)
            _remove(place)
            num_removed += 1
    return num_removed


def adopt_leftover_pin(pin_root: Path, source: Path) -> Path | None:
    """Take over a pin that a killed run left of `source`, and return the model's folder in it; None when there is none.

    It lets a run resume whose checkpoint the trainer has removed meanwhile.
    """
    own = source_digest(source.absolute())
    for place in reversed(_pin_folders(pin_root)):
        if not place.name.startswith(f"{own}-") or not _lock(place):
            continue
        try:
            record = PinRecord.model_validate_json((place / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            _remove(place)  # killed before the record was written: nothing in it is known to be whole
            continue
        return place / record.folder
    return None


def adopted_pin(report: CheckpointReport, source: Path) -> Pin:
    """Return the pin of a folder that `adopt_leftover_pin` took over, `report` being its inspection."""
    return Pin(
        folder=report.path, source=source.absolute(), pinned=True, reason=None, marks=_marks(report, report.path)
    )


def _make_place(pin_root: Path, source: Path) -> Path:
    """Return a new pin folder that this process owns, empty but for its lock.

    It gets its name once it is locked: before that another run would take it for a leftover.
    """
    unique = secrets.token_hex(4)
    unnamed = pin_root / f".new-{unique}"
    place = pin_root / f"{source_digest(source)}-{unique}"
    try:
        unnamed.mkdir(parents=True)
        _lock(unnamed)
        unnamed.rename(place)
    except OSError as exc:
        _remove(unnamed)
        raise StoreError(
            f"{pin_root}: cannot be written ({exc.strerror}); make it writable or point cluster.fileroot elsewhere"
        ) from exc
    _held_locks[place] = _held_locks.pop(unnamed)
    return place


def _copy_companions(report: CheckpointReport, folder: Path, tokenizer_folder: Path | None) -> None:
    """Copy configuration, tokenizer and chat template: small files, which a rewrite in place must not reach."""
    weights = {path.name for path in report.weight_files}
    for path in sorted(report.path.iterdir()):
        is_replaced = tokenizer_folder is not None and path.name in TOKENIZER_FILES
        if path.suffix in _COMPANION_SUFFIXES and path.name not in weights and path.is_file() and not is_replaced:
            shutil.copyfile(path, folder / path.name)
    origin = tokenizer_folder or report.path
    if tokenizer_folder is not None:
        for name in sorted(TOKENIZER_FILES):
            if (tokenizer_folder / name).is_file():
                shutil.copyfile(tokenizer_folder / name, folder / name)
    if (origin / "chat_templates").is_dir():
        (folder / "chat_templates").mkdir()
        for path in sorted((origin / "chat_templates").glob("*.jinja")):
            shutil.copyfile(path, folder / "chat_templates" / path.name)


def _link_weights(report: CheckpointReport, folder: Path) -> str | None:
    """Link every shard; return why one of them could be linked symbolically only, None when all are held."""
    reason: str | None = None
    for path in report.weight_files:
        real = path.resolve(strict=True)  # the hub's cache holds symbolic links: the file itself is what must not go
        try:
            os.link(real, folder / path.name)
        except OSError as exc:
            if exc.errno not in _LINK_REFUSED:
                raise
            (folder / path.name).symlink_to(real)
            where = "another file system" if exc.errno == errno.EXDEV else f"{exc.strerror}"
            reason = (
                f"{report.path} could not be pinned under {folder.parents[1]} ({where}): if the trainer removes it "
                f"during the evaluation, the run fails; put cluster.fileroot on the checkpoints' file system to "
                f"protect it"
            )
    if reason is not None:
        _log.warning("%s", reason)
    return reason


def _marks(report: CheckpointReport, folder: Path) -> dict[Path, FileMark]:
    return {folder / path.name: mark_file(folder / path.name) for path in report.weight_files}


def _pin_folders(pin_root: Path) -> list[Path]:
    try:
        places = [place for place in pin_root.absolute().iterdir() if place.is_dir() and not place.is_symlink()]
        return sorted(places, key=lambda place: place.stat().st_mtime)
    except OSError:
        return []  # no pins yet, or one vanished while it was listed: nothing to take over


def source_digest(source: Path) -> str:
    """Return the hex digest of an absolute path, which starts the names of its pins."""
    return hashlib.sha256(os.fsencode(source)).hexdigest()[:16]


def _lock(place: Path) -> bool:
    """Become the owner of a pin; False while this or another process is."""
    if place in _held_locks:
        return False
    try:
        descriptor = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return False  # released by another run, or not ours to touch
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False  # its owner lives, or the file system has no locks: then nothing is ever taken for a leftover
    _held_locks[place] = descriptor
    return True


def _remove(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    descriptor = _held_locks.pop(place, None)
    if descriptor is not None:
        os.close(descriptor)
