"""What has been told already: one small file per cause in `{fileroot}/alerts/`, so that a cause is told once."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pydantic import ValidationError

from schemas.alerts import AlertRecord
from schemas.events import Event
from schemas.run import RunIdentity
from schemas.tables import ALERTS

logger = logging.getLogger(__name__)


def enter_event(folder: Path, event: Event, *, silence: timedelta, now: datetime) -> AlertRecord | None:
    """Enter an event into the ledger and return its record; None when its cause was entered before.

    The record is silenced where another event of its kind and subject was told less than `silence` before `now`. Of two
    processes that meet the same cause at once, one gets the record. A ledger that cannot be written silences nothing.
    """
    record = AlertRecord(
        event=event.event,
        event_id=str(event.event_id),
        resource=event.resource,
        subject=event.subject,
        checkpoint=event.checkpoint,
        occurred_at=now,
        message=event.message,
        silenced=any(_silences(earlier, event, now - silence) for earlier in read_ledger(folder)) if silence else False,
    )
    path = folder / f"{record.event_id}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(record.model_dump_json())
    except OSError as exc:
        if path.exists():
            return None
        logger.warning("%s cannot be written (%s): this alert may be told again", folder, exc.strerror)
    return record


def read_ledger(folder: Path) -> list[AlertRecord]:
    """Return what was entered, the oldest first; what a killed process left half-written is passed over."""
    records: list[AlertRecord] = []
    for path in folder.glob("*.json"):
        try:
            records.append(AlertRecord.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            continue
    return sorted(records, key=lambda record: record.occurred_at)


def to_alert_table(records: Sequence[AlertRecord], identity: RunIdentity) -> pa.Table:
    """Return the rows of table `alerts`: what was told of the run's checkpoint on its dataset until now."""
    rows = [
        identity.model_dump() | record.model_dump(include={"event", "event_id", "occurred_at", "message", "silenced"})
        for record in records
        if (record.checkpoint, record.subject) == (identity.checkpoint, identity.dataset)
    ]
    return pa.Table.from_pylist(rows, schema=ALERTS)


def alert_folder(fileroot: str) -> Path:
    """Return the folder of the ledger."""
    return Path(fileroot) / "alerts"


def _silences(earlier: AlertRecord, event: Event, since: datetime) -> bool:
    is_alike = (earlier.event, earlier.subject) == (event.event, event.subject)
    return is_alike and not earlier.silenced and earlier.occurred_at > since
