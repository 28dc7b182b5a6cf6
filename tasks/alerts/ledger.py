"""What has been told already: one small file per cause in `{fileroot}/alerts/`, so that a cause is told once."""

import logging
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Final
from uuid import UUID, uuid5

import pyarrow as pa
from pydantic import ValidationError

from infra.files.atomic import write_text_atomically
from schemas.alerts import AlertRecord
from schemas.errors import ConfigError, DatasetError, LaunchError, StoreError
from schemas.events import EvaluationFailed, Event
from schemas.run import RunIdentity
from schemas.tables import ALERTS

_CHANCE: Final = re.compile(r"\b(?:0x)?[0-9a-f-]{8,}\b", re.IGNORECASE)
"""What differs between two reports of one problem: addresses of objects, ids of requests."""

logger = logging.getLogger(__name__)


def digest_problem(error: Exception) -> str:
    """Return the digest of what is wrong with dataset or configuration; empty for any other error.

    What a cluster lacks is none of them: its words tell how much, which differs each time.
    """
    is_of_input = isinstance(error, (ConfigError, DatasetError)) and not isinstance(error, LaunchError)
    return digest_words(str(error)) if is_of_input else ""


def digest_words(words: str) -> str:
    """Return a digest that is the same for two reports of one problem."""
    return blake2b(_CHANCE.sub("", words).encode("utf-8", "replace"), digest_size=8).hexdigest()


def make_record(folder: Path, event: Event, *, training: str, silence: timedelta, now: datetime) -> AlertRecord | None:
    """Return the record of an event that is to be told; None when its cause was told before, and has not ended since.

    It is silenced where another event of its kind, training and subject was told less than `silence` before `now`; a
    cause that is still there after that is told then.
    """
    event_id = str(event.event_id)
    while (before := read_record(folder, event_id)) is not None and _is_over(before, now - silence):
        event_id = _next_id(event_id)
    if before is not None and (before.told or before.undelivered):
        return None
    record = AlertRecord(
        event=event.event,
        event_id=event_id,
        resource=event.resource,
        subject=event.subject,
        training=training,
        checkpoint=event.checkpoint,
        occurred_at=now,
        message=event.message,
        silenced=False,
    )
    is_silenced = (
        any(_silences(earlier, record, now - silence) for earlier in read_ledger(folder)) if silence else False
    )
    return record.model_copy(update={"silenced": is_silenced})


def enter_record(folder: Path, record: AlertRecord) -> bool:
    """Enter a record in the place of an earlier one of its cause; a ledger that cannot be written silences nothing.

    Returns whether it is entered.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(_path_of(folder, record.event_id), record.model_dump_json())
    except (OSError, StoreError) as exc:
        logger.warning("%s cannot be written (%s): this alert may be told again", folder, exc)
        return False
    return True


def end_failures(folder: Path, *, checkpoint: str, subject: str) -> None:
    """Enter that whatever kept a checkpoint from being evaluated on a dataset is over."""
    ended = (EvaluationFailed.event, checkpoint, subject)
    for record in read_ledger(folder):
        if (record.event, record.checkpoint, record.subject) == ended and not record.ended:
            enter_record(folder, record.model_copy(update={"ended": True}))


def read_ledger(folder: Path) -> list[AlertRecord]:
    """Return what was entered, the oldest first; what is no record is passed over."""
    records = filter(None, map(_read_path, folder.glob("*.json")))
    return sorted(records, key=lambda record: record.occurred_at)


def was_told(folder: Path, event: Event, *, since: datetime | None) -> bool:
    """Whether an event of this kind about the same checkpoint and subject was told; `since` None: ever."""
    return any(
        (record.event, record.checkpoint, record.subject) == (event.event, event.checkpoint, event.subject)
        for record in read_ledger(folder)
        if (record.told or record.undelivered) and (since is None or record.occurred_at >= since)
    )


def to_alert_table(records: Sequence[AlertRecord], identity: RunIdentity) -> pa.Table:
    """Return the rows of table `alerts`: what was told of the run's checkpoint on its dataset until now."""
    rows = [
        identity.model_dump() | record.model_dump(include={"event", "event_id", "occurred_at", "message", "silenced"})
        for record in records
        if (record.checkpoint, record.subject) == (identity.checkpoint, identity.dataset)
    ]
    return pa.Table.from_pylist(rows, schema=ALERTS)


def _is_over(record: AlertRecord, since: datetime) -> bool:
    """Whether the same cause is news: it had ended, or was kept from people by a silence that is over."""
    return record.ended or (record.silenced and record.occurred_at <= since)


def alert_folder(fileroot: Path) -> Path:
    """Return the folder of the ledger."""
    return fileroot / "alerts"


def _next_id(event_id: str) -> str:
    """Return the id of an event that is news again: the server drops one that it has had."""
    return str(uuid5(UUID(event_id), "again"))


def _path_of(folder: Path, event_id: str) -> Path:
    return folder / f"{event_id}.json"


def read_record(folder: Path, event_id: str) -> AlertRecord | None:
    """Return the record of an event; None where there is none that can be read."""
    return _read_path(_path_of(folder, event_id))


def _read_path(path: Path) -> AlertRecord | None:
    try:
        return AlertRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _silences(earlier: AlertRecord, record: AlertRecord, since: datetime) -> bool:
    is_alike = all(getattr(earlier, name) == getattr(record, name) for name in ("event", "training", "subject"))
    return is_alike and earlier.told and not earlier.silenced and earlier.occurred_at > since
