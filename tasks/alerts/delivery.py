"""Messages that wait for their targets: a marker per alert in `{fileroot}/alerts/` beside its record.

    {event id}.waiting   at least one target does not have the message
    {event id}.sending   a process is sending it; renamed from the marker above, which one process only can do

A message counts as delivered once its target has taken it. A target that does not is asked again after a minute, then
after twice as long, up to an hour; after a week no more. A process that is killed between the target's answer and the
entry of it sends that message twice; nothing else does.
"""

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from schemas.alerts import AlertName, AlertRecord, AlertsConfig, Delivery
from schemas.errors import MilepostError
from schemas.events import (
    CheckpointLanded,
    ConsistencyViolated,
    DriftDetected,
    EvaluationCompleted,
    EvaluationFailed,
    Event,
    GenerationDegenerate,
    RegressionDetected,
)
from tasks.alerts.ledger import enter_record, read_ledger, read_record

EVENTS: Final[dict[AlertName, type[Event]]] = {
    "landed": CheckpointLanded,
    "completed": EvaluationCompleted,
    "failed": EvaluationFailed,
    "drift": DriftDetected,
    "inconsistency": ConsistencyViolated,
    "regression": RegressionDetected,
    "degenerate": GenerationDegenerate,
}
_FIRST_WAIT: Final = timedelta(minutes=1)
_LONGEST_WAIT: Final = timedelta(hours=1)
_GIVEN_UP_AFTER: Final = timedelta(days=7)
_ABANDONED_S: Final = 600.0
"""Age at which a marker `sending` is that of a process that was killed: one message takes ten seconds at most."""

Send = Callable[[Delivery, AlertRecord], None]

logger = logging.getLogger(__name__)


def plan_deliveries(
    event: Event, alerts: AlertsConfig, *, now: datetime, told_by: AlertName | None = None
) -> tuple[Delivery, ...]:
    """Return the message to each target that takes events of this kind.

    `told_by`: another alert that says the same; a target that takes that one gets no second message.
    """
    return tuple(
        Delivery(target=kind, secret=target.secret, next_at=now)
        for kind, target in alerts.targets.items()
        if any(EVENTS[name] is type(event) for name in alerts.events_of(target))
        and (told_by is None or told_by not in alerts.events_of(target))
    )


def enter_waiting(folder: Path, record: AlertRecord) -> bool:
    """Enter a record whose messages wait, unless another process has just done so; return whether it is entered."""
    held = read_record(folder, record.event_id)
    if held is not None and (held.told or held.undelivered):
        return True
    with suppress(OSError):  # `enter_record` says what is wrong with the folder
        folder.mkdir(parents=True, exist_ok=True)
        _marker(folder, record.event_id).touch()
    return enter_record(folder, record)


def deliver_due(folder: Path, send: Send, *, now: datetime) -> datetime | None:
    """Send each message that is due; return when the next attempt is due, None where nothing waits.

    `send` raises MilepostError where a target does not take a message.
    """
    for abandoned in filter(_is_old, folder.glob("*.sending")):
        with suppress(OSError):
            abandoned.rename(abandoned.with_suffix(".waiting"))
    due: list[datetime] = []
    for marker in sorted(folder.glob("*.waiting")):
        record = read_record(folder, marker.stem)
        if record is None and _is_old(marker):  # its record was removed, which gives it up
            with suppress(OSError):  # a folder that may only be read ends no evaluation
                marker.unlink()
        if record is not None and any(each.next_at and each.next_at <= now for each in record.undelivered):
            record = _deliver(folder, marker, send, now)
        if record is not None:
            due.extend(each.next_at for each in record.undelivered if each.next_at)
    return min(due, default=None)


def attempt(record: AlertRecord, send: Send, *, now: datetime) -> AlertRecord:
    """Return a record after one attempt at each of its messages that is due."""
    deliveries = tuple(
        _attempt_one(each, record, send, now)
        if each.delivered_at is None and each.next_at is not None and each.next_at <= now
        else each
        for each in record.deliveries
    )
    is_told = all(each.delivered_at for each in deliveries)
    return record.model_copy(update={"deliveries": deliveries, "told": is_told})


def read_undelivered(folder: Path) -> list[AlertRecord]:
    """Return the alerts that wait for a target, or are given up, the oldest first."""
    return [record for record in read_ledger(folder) if record.undelivered]


def describe_undelivered(record: AlertRecord) -> str:
    """Return one line about an alert that a target does not have."""
    parts = [
        f"{each.target}: {each.num_attempts} attempts"
        + (f", {each.error}" if each.error else "")
        + (f", next {each.next_at:%Y-%m-%d %H:%M} UTC" if each.next_at else ", given up")
        for each in record.undelivered
    ]
    return f"{record.title or record.event} waits for {'; '.join(parts)}"


def _deliver(folder: Path, marker: Path, send: Send, now: datetime) -> AlertRecord | None:
    """Send what is due of one record; return it as it is now, None where another process is at it."""
    sending = marker.with_suffix(".sending")
    try:
        os.utime(marker)  # from now on its age counts
        marker.rename(sending)
    except OSError:
        return None
    record = read_record(folder, marker.stem)  # it may have been delivered since
    if record is None:
        return None
    record = attempt(record, send, now=now)
    is_over = not any(each.next_at for each in record.undelivered)
    if enter_record(folder, record) and is_over:
        with suppress(OSError):
            sending.unlink()
    else:
        with suppress(OSError):
            sending.rename(marker)
    return record


def _attempt_one(delivery: Delivery, record: AlertRecord, send: Send, now: datetime) -> Delivery:
    num_attempts = delivery.num_attempts + 1
    try:
        send(delivery, record)
    except MilepostError as exc:
        wait = min(_FIRST_WAIT * 2 ** min(num_attempts - 1, 10), _LONGEST_WAIT)
        is_over = now + wait - record.occurred_at > _GIVEN_UP_AFTER
        logger.warning(
            "alerts.%s has not got %r: %s; %s",
            delivery.target, record.title, exc, "given up" if is_over else f"next attempt in {wait}",
        )  # fmt: skip
        return delivery.model_copy(
            update={"num_attempts": num_attempts, "next_at": None if is_over else now + wait, "error": str(exc)}
        )
    return delivery.model_copy(update={"num_attempts": num_attempts, "delivered_at": now, "next_at": None, "error": ""})


def _is_old(marker: Path) -> bool:
    try:
        return time.time() - marker.stat().st_mtime > _ABANDONED_S
    except OSError:  # another process has taken it
        return False


def _marker(folder: Path, event_id: str) -> Path:
    return folder / f"{event_id}.waiting"
