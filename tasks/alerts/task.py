"""Events for Prefect: automations turn them into messages."""

import logging

from prefect.events import emit_event

from schemas.events import Event

logger = logging.getLogger(__name__)


def announce(event: Event, resource: str) -> None:
    """Emit an event about a resource, such as a run's id, and say the same in the log."""
    logger.warning("%s: %s", event.event, event.message)
    emit_event(
        event=event.event,
        resource={"prefect.resource.id": f"milepost.{resource}"},
        payload=event.model_dump(mode="json"),
    )
