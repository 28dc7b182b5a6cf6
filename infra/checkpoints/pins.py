"""Pins: hard links that keep a checkpoint's weights under an evaluation while the trainer rotates its folders.

A pin is {pin_root}/{digest of the source path}-{unique}/ with the model's folder inside, the record pin.json and its
owner (infra/ownership/run_ownership.py): a pin whose owner is dead was left by a killed run.
A hard link keeps the bytes of a removed or replaced file; it does not keep those of a file rewritten in place, which is
what `verify_pin` finds. Small files are copied, so that even a rewrite in place does not reach them.
"""

import errno
import hashlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from infra.checkpoints.adapter import BASE_FOLDER
from infra.checkpoints.digests import FileMark, mark_file
from infra.files.atomic import make_private_root, write_text_atomically
from infra.ownership.run_ownership import RunOwnership, is_abandoned
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

logger = logging.getLogger(__name__)


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
    ownership: RunOwnership
    """What tells other runs that this one needs it."""


class LeftoverPin(NamedTuple):
    """A pin that a killed run left, owned now by this process."""

    folder: Path
    """The model's folder in it."""
    ownership: RunOwnership


def pin_checkpoint(
    report: CheckpointReport, pin_root: Path, *, source: Path | None = None, tokenizer_folder: Path | None = None
) -> Pin:
    """Link the checkpoint's weights, and copy its small files, into a folder of its own under `pin_root`.

    Where hard links cannot be made (another file system, or not allowed) the weights are symbolic links, which protect
    nothing: the result says so, and `verify_pin` finds a removal. A copy of the weights would take too long. Tokenizer
    and chat template are those of `tokenizer_folder` where one is given, so that an engine finds them with the weights.
    `source` is the folder that the user named, where the weights are further down.

    Raises:
        CheckpointError: a file vanished while it was being pinned.
        StoreError: `pin_root` cannot be written.
    """
    source = (source or report.path).absolute()
    place, ownership = _make_place(pin_root.absolute(), source)
    folder = place / (source.name or "checkpoint")
    try:
        reason = link_checkpoint(report, folder, tokenizer_folder=tokenizer_folder)
        pin = Pin(
            folder=folder,
            source=source,
            pinned=reason is None,
            reason=reason,
            marks=_marks(report, folder),
            ownership=ownership,
        )
        if pin.pinned:
            # Last: a pin with a record is whole.
            record = PinRecord(source=source, folder=folder.name)
            write_text_atomically(place / _RECORD, record.model_dump_json())
    except FileNotFoundError as exc:
        _remove(place, ownership)
        raise CheckpointError(
            f"{source}: {exc.filename} vanished while it was being pinned; the trainer removed or replaced it: name a "
            f"checkpoint that is kept, or try again"
        ) from exc
    except OSError as exc:
        _remove(place, ownership)
        raise StoreError(
            f"{pin_root}: cannot hold a pin of {source} ({exc.strerror or exc}); free space there, make it writable or "
            f"point cluster.fileroot elsewhere"
        ) from exc
    except BaseException:
        _remove(place, ownership)
        raise
    return pin


def link_checkpoint(report: CheckpointReport, folder: Path, *, tokenizer_folder: Path | None = None) -> str | None:
    """Make `folder` hold the checkpoint's weights as links and its small files as copies.

    An adapter's base, with the tokenizer, is in a folder in it. No trainer rotates a base: where that can be linked
    symbolically only, as from a hub's cache on another disk, it is no reason for a warning.

    Returns why the weights do not outlive the trainer's rotation; None when they do.

    Raises:
        FileNotFoundError: a file vanished meanwhile.
        OSError: `folder` is there already, or cannot be written.
    """
    folder.mkdir(parents=True)
    _copy_companions(report.path, folder)
    if report.adapter is None:
        _copy_tokenizer(tokenizer_folder or report.path, folder)
    else:
        base = folder / BASE_FOLDER
        base.mkdir()
        _copy_companions(report.adapter.base_folder, base)
        _copy_tokenizer(tokenizer_folder or report.tokenizer_folder or report.adapter.base_folder, base)
        _link_weights(report.adapter.base_weight_files, base)
    refusal = _link_weights(report.weight_files, folder)
    if refusal is None:
        return None
    reason = (
        f"{report.path} could not be pinned under {folder.parents[1]} ({refusal}): if the trainer removes it during "
        f"the evaluation, the run fails; put cluster.fileroot on the checkpoints' file system to protect it"
    )
    logger.warning("%s", reason)
    return reason


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
    _remove(pin.folder.parent, pin.ownership)


def release_leftover_pins(pin_root: Path, source: Path, *, now_s: float | None = None) -> int:
    """Remove the pins that killed runs left of `source`, and those of any source older than a week.

    Pins of runs that live, on this machine or on another that shares the file system, stay. Returns the number removed.
    """
    own = source_digest(source.absolute())
    num_removed = 0
    for place in _pin_folders(pin_root):
        is_left = place.name.startswith(f"{own}-") and is_abandoned(place)
        if is_left or _silence_s(place, time.time() if now_s is None else now_s) > LEFTOVER_LIFE_S:
            logger.info("released the pin %s, left by a run that was killed", place)
            shutil.rmtree(place, ignore_errors=True)
            num_removed += 1
    return num_removed


def adopt_leftover_pin(pin_root: Path, source: Path) -> LeftoverPin | None:
    """Take over a pin that a killed run left of `source`; None when there is none.

    It lets a run resume whose checkpoint the trainer has removed meanwhile. Waits a minute for a sign of life where the
    killed run was on another machine.
    """
    own = source_digest(source.absolute())
    for place in reversed(_pin_folders(pin_root)):
        if not place.name.startswith(f"{own}-") or not (place / _RECORD).is_file():
            continue  # killed before the record was written: nothing in it is known to be whole
        ownership = RunOwnership.acquire(place)
        if ownership is None:
            continue
        try:
            record = PinRecord.model_validate_json((place / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            _remove(place, ownership)  # another run released it, or it was edited
            continue
        return LeftoverPin(place / record.folder, ownership)
    return None


def adopted_pin(report: CheckpointReport, source: Path, ownership: RunOwnership) -> Pin:
    """Return the pin of a folder that `adopt_leftover_pin` took over, `report` being its inspection."""
    return Pin(
        folder=report.path,
        source=source.absolute(),
        pinned=True,
        reason=None,
        marks=_marks(report, report.path),
        ownership=ownership,
    )


def _make_place(pin_root: Path, source: Path) -> tuple[Path, RunOwnership]:
    """Return a new pin folder that this process owns. Until it has an owner, others leave it alone."""
    place = pin_root / f"{source_digest(source)}-{secrets.token_hex(4)}"
    try:
        make_private_root(pin_root)
        place.mkdir()
    except OSError as exc:
        raise StoreError(
            f"{pin_root}: cannot be written ({exc.strerror}); make it writable or point cluster.fileroot elsewhere"
        ) from exc
    ownership = RunOwnership.acquire(place)
    if ownership is None:
        raise StoreError(f"{place}: another process has taken this new folder; evaluate again")
    return place, ownership


def _copy_companions(origin: Path, folder: Path) -> None:
    """Copy what an engine reads beside weights and tokenizer: small files, which a rewrite in place must not reach."""
    for path in sorted(origin.iterdir()):
        if path.suffix in _COMPANION_SUFFIXES and path.name not in TOKENIZER_FILES and path.is_file():
            shutil.copyfile(path, folder / path.name)


def _copy_tokenizer(origin: Path, folder: Path) -> None:
    """Copy tokenizer and chat template."""
    for name in sorted(TOKENIZER_FILES):
        if (origin / name).is_file():
            shutil.copyfile(origin / name, folder / name)
    if (origin / "chat_templates").is_dir():
        (folder / "chat_templates").mkdir()
        for path in sorted((origin / "chat_templates").glob("*.jinja")):
            shutil.copyfile(path, folder / "chat_templates" / path.name)


def _link_weights(files: Sequence[Path], folder: Path) -> str | None:
    """Link every shard; return why one of them could be linked symbolically only, None when all are held."""
    refusal: str | None = None
    for path in files:
        real = path.resolve(strict=True)  # the hub's cache holds symbolic links: the file itself is what must not go
        try:
            os.link(real, folder / path.name)
        except OSError as exc:
            if exc.errno not in _LINK_REFUSED:
                raise
            (folder / path.name).symlink_to(real)
            refusal = "another file system" if exc.errno == errno.EXDEV else f"{exc.strerror}"
    return refusal


def _marks(report: CheckpointReport, folder: Path) -> dict[Path, FileMark]:
    paths = [folder / path.name for path in report.weight_files]
    if report.adapter is not None:
        paths += [folder / BASE_FOLDER / path.name for path in report.adapter.base_weight_files]
    return {path: mark_file(path) for path in paths}


def _pin_folders(pin_root: Path) -> list[Path]:
    try:
        places = [place for place in pin_root.absolute().iterdir() if place.is_dir() and not place.is_symlink()]
        return sorted(places, key=lambda place: place.stat().st_mtime)
    except OSError:
        return []  # no pins yet, or one vanished while it was listed: nothing to take over


def source_digest(source: Path) -> str:
    """Return the hex digest of an absolute path, which starts the names of its pins."""
    return hashlib.sha256(os.fsencode(source)).hexdigest()[:16]


def _silence_s(place: Path, now_s: float) -> float:
    """Return the seconds since its owner's last sign of life; 0 when it has just been released."""
    try:
        return now_s - max(path.stat().st_mtime for path in (place, *(place / "owners").glob("*.beat")))
    except OSError:
        return 0.0


def _remove(place: Path, ownership: RunOwnership) -> None:
    ownership.release()  # first: its beat would come back into the folder that is being removed
    shutil.rmtree(place, ignore_errors=True)
