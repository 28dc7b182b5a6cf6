"""Events for Prefect: automations turn them into messages and runs."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

import httpx
from prefect.events import emit_event
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run

from infra.run_directory import RunDirectory
from schemas.config import EvaluationConfig
from schemas.errors import MilepostError
from schemas.events import CheckpointLanded, EvaluationCompleted, EvaluationFailed, Event
from schemas.summary import RunSummary
from tasks.alerts.ledger import alert_folder, enter_event
from tasks.alerts.message import compose

PREFECT_FAILURES: Final = (httpx.HTTPError, PrefectException)
"""What a call to a Prefect server raises when it is out of reach, or refuses."""
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


def announce_completion(summary: RunSummary, config: EvaluationConfig) -> None:
    """Say that a run is published."""
    found = next((m for m in summary.metrics if m.metric == "accuracy" and m.subset == "all"), None)
    value, stderr = (found.value, found.stderr) if found else (None, None)
    shown = "undefined" if value is None else f"{value:.3f}" + ("" if stderr is None else f" ± {stderr:.3f}")
    event = EvaluationCompleted(
        checkpoint=summary.checkpoint,
        global_step=summary.global_step,
        dataset=summary.dataset,
        message=f"accuracy {shown} over {summary.num_scored} samples, {summary.num_failed} without a verdict",
        link=str(RunDirectory(path=summary.run_dir).page_path),
        run_id=summary.run_id,
        accuracy=value,
        stderr=stderr,
        num_scored=summary.num_scored,
        num_failed=summary.num_failed,
    )
    announce(event, config)


def announce_failure(error: MilepostError, config: EvaluationConfig, run_id: str, global_step: int | None) -> None:
    """Say that an evaluation ended without metrics; `run_id` is empty where there was no run yet."""
    event = EvaluationFailed(
        checkpoint=config.actor.path,
        global_step=global_step,
        dataset=config.valid_dataset.name or config.valid_dataset.path,
        message=str(error),
        run_id=run_id,
        error=type(error).__name__,
    )
    announce(event, config)
