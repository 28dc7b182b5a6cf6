"""Events for Prefect: automations turn them into messages and runs."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.events import Event as PrefectEvent
from prefect.events import RelatedResource, Resource
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL

from infra.datasets.naming import dataset_name
from infra.own_servers import is_own_server
from infra.run_directory import RunDirectory, run_at
from schemas.alerts import AlertRecord
from schemas.config import EvaluationConfig
from schemas.errors import DatasetError, MilepostError
from schemas.events import CheckpointLanded, EvaluationCompleted, EvaluationFailed, Event
from schemas.stand_in import DUMMY_ENGINE, is_dummy
from schemas.summary import WHOLE_SET, RunSummary
from tasks.alerts.ledger import alert_folder, end_failures, enter_record, make_record
from tasks.alerts.message import compose

PREFECT_FAILURES: Final = (httpx.HTTPError, PrefectException)
"""What a call to a Prefect server raises when it is out of reach, or refuses."""
_GOOD_NEWS: Final = (CheckpointLanded, EvaluationCompleted)

logger = logging.getLogger(__name__)


def announce(event: Event, config: EvaluationConfig) -> bool:
    """Emit an event and say the same in the log; nothing where its cause was told before.

    Its resource carries `milepost.alert`: `send`, or `silenced` within `alerts.silence_hours` of one like it. Whoever
    listens finds the `title` and `text` of a message for people beside the event's own fields. It counts as told once
    a server that goes on after this command has taken it; returns whether it is told by now.
    """
    folder = alert_folder(config.cluster.folder)
    record = make_record(
        folder,
        event,
        training=f"{config.experiment_name}/{config.trial_name}",
        silence=timedelta(hours=config.alerts.silence_hours),
        now=datetime.now(UTC),
    )
    if record is None:
        logger.debug("%s: told before: %s", event.event, event.message)
        return True
    logger.log(
        logging.INFO if isinstance(event, _GOOD_NEWS) else logging.WARNING,
        "%s%s: %s", event.event, " (silenced)" if record.silenced else "", event.message,
    )  # fmt: skip
    # entered last: a process that is killed in between tells it again, and the server drops an id that it has seen
    is_told = _emit(event, record, config)
    enter_record(folder, record.model_copy(update={"told": is_told}))
    return is_told


def _emit(event: Event, record: AlertRecord, config: EvaluationConfig) -> bool:
    """Hand an event to the Prefect server and return whether people may have heard of it."""
    api_url = PREFECT_API_URL.value()
    if not api_url:
        return False
    run_id = flow_run.id
    flow_run_labels = {"prefect.resource.id": f"prefect.flow-run.{run_id}", "prefect.resource.role": "flow-run"}
    emitted = PrefectEvent(
        id=UUID(record.event_id),
        event=event.event,
        resource=Resource(
            {
                "prefect.resource.id": f"milepost.{event.resource}",
                "milepost.alert": "silenced" if record.silenced else "send",
            }
        ),
        related=[RelatedResource(flow_run_labels)] if run_id else [],
        payload=event.model_dump(mode="json")
        | compose(event, config, run_page=(flow_run.ui_url or "") if run_id else "")._asdict(),
    )
    try:
        with get_client(sync_client=True) as client:  # emit_event would only queue it
            client.request("POST", "/events", content=f"[{emitted.model_dump_json()}]")
    except PREFECT_FAILURES as exc:
        logger.warning("the Prefect server does not take %s (%s); it is told when it is met again", event.event, exc)
        return False
    return not is_own_server(api_url)


def announce_completion(summary: RunSummary, config: EvaluationConfig) -> None:
    """Say that a run is published; an evaluation of the same that fails from now on is news."""
    end_failures(alert_folder(config.cluster.folder), checkpoint=summary.checkpoint, subject=summary.dataset)
    found = next((m for m in summary.metrics if m.metric == "accuracy" and m.subset == WHOLE_SET), None)
    value, stderr = (found.value, found.stderr) if found else (None, None)
    shown = "undefined" if value is None else f"{value:.3f}" + ("" if stderr is None else f" ± {stderr:.3f}")
    event = EvaluationCompleted(
        checkpoint=summary.checkpoint,
        global_step=summary.global_step,
        dataset=summary.dataset,
        message=(f"{DUMMY_ENGINE}: " if is_dummy(summary.engine) else "")
        + f"accuracy {shown} over {summary.num_scored} samples, {summary.num_failed} without a verdict",
        link=str(RunDirectory(path=summary.run_dir).page_path),
        run_id=summary.run_id,
        accuracy=value,
        stderr=stderr,
        num_scored=summary.num_scored,
        num_failed=summary.num_failed,
    )
    announce(event, config)


def announce_failure(error: Exception, config: EvaluationConfig, run_id: str, global_step: int | None) -> None:
    """Say that an evaluation ended without metrics; `run_id` is empty where there was no run yet."""
    name = type(error).__name__
    event = EvaluationFailed(
        checkpoint=config.actor.path,
        global_step=global_step,
        dataset=dataset_of(config),
        # the words of others may hold an address with its token
        message=str(error) if isinstance(error, MilepostError) else f"it ended with {name}; the run's log says why",
        link=str(run_at(config.cluster.folder, run_id).path) if run_id else "",
        run_id=run_id,
        error=name,
    )
    announce(event, config)


def dataset_of(config: EvaluationConfig) -> str:
    """Return the name that the runs of an evaluation give its dataset."""
    try:
        return dataset_name(config.valid_dataset)
    except DatasetError:
        return config.valid_dataset.path
