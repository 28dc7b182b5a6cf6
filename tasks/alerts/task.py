"""Events for Prefect: automations turn them into messages and runs."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from prefect.events import emit_event
from prefect.runtime import flow_run

from schemas.config import EvaluationConfig
from schemas.events import CheckpointLanded, EvaluationCompleted, Event
from tasks.alerts.ledger import alert_folder, enter_event
from tasks.alerts.message import compose

_GOOD_NEWS: Final = (CheckpointLanded, EvaluationCompleted)

logger = logging.getLogger(__name__)


def announce(event: Event, config: EvaluationConfig) -> None:
    """Emit an event and say the same in the log; nothing where its cause was announced before.

    Its resource carries `milepost.alert`: `send`, or `silenced` within `alerts.silence_hours` of one like it. Whoever
    listens finds the `title` and `text` of a message for people beside the event's own fields.
    """
    record = enter_event(
        alert_folder(config.cluster.fileroot),
        event,
        silence=timedelta(hours=config.alerts.silence_hours),
        now=datetime.now(UTC),
    )
    if record is None:
        logger.info("%s: told before: %s", event.event, event.message)
        return
    logger.log(
        logging.INFO if isinstance(event, _GOOD_NEWS) else logging.WARNING,
        "%s%s: %s", event.event, " (silenced)" if record.silenced else "", event.message,
    )  # fmt: skip
    run_page = (flow_run.ui_url or "") if flow_run.id else ""
    emit_event(
        id=event.event_id,
        event=event.event,
        resource={
            "prefect.resource.id": f"milepost.{event.resource}",
            "milepost.alert": "silenced" if record.silenced else "send",
        },
        payload=event.model_dump(mode="json") | compose(event, config, run_page=run_page)._asdict(),
    )
