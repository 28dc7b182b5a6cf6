"""Events for Prefect, and their messages for people."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events import Event as PrefectEvent
from prefect.events import RelatedResource, Resource
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL
from prefect.states import Scheduled

from infra.datasets.naming import dataset_name
from infra.fileroot.run_directory import RunDirectory, run_at
from infra.notifications import check_address, send_message
from infra.prefect_server.ephemeral_servers import is_own_server
from schemas.alerts import AlertName, AlertRecord, AlertsConfig, Delivery
from schemas.config import EvaluationConfig
from schemas.errors import DatasetError, MilepostError, ReplicasDisagreeError, SetupError, TransientError
from schemas.events import CheckpointLanded, EvaluationCompleted, EvaluationFailed, Event
from schemas.stand_in import DUMMY_ENGINE, is_dummy
from schemas.summary import WHOLE_SET, RunSummary
from tasks.alerts.addresses import find_in_environment, name_block
from tasks.alerts.delivery import attempt, deliver_due, enter_waiting, plan_deliveries
from tasks.alerts.ledger import alert_folder, digest_problem, end_failures, enter_record, make_record
from tasks.alerts.message import compose

PREFECT_FAILURES: Final = (httpx.HTTPError, PrefectException)
"""What a call to a Prefect server raises when it is out of reach, or refuses."""
FOLLOW_UP: Final = "follow-up/follow-up"
"""The deployment that delivers what waits, and follows up runs that nobody is at."""
_CLOCKS_DIFFER: Final = timedelta(seconds=5)
"""A run that starts before the message is due, by the clock of its machine, would plan the same run again: none."""
_GOOD_NEWS: Final = (CheckpointLanded, EvaluationCompleted)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertContext:
    """What is needed of a configuration to alert people; of one that is no longer valid, it may be all there is."""

    fileroot: Path
    """Folder of the ledger."""
    training: str
    """Experiment and trial, as `experiment/trial`."""
    alerts: AlertsConfig
    """Who is told of what."""


def context_of(config: EvaluationConfig) -> AlertContext:
    """Return the context of a configuration."""
    training = f"{config.experiment_name}/{config.trial_name}"
    return AlertContext(fileroot=config.cluster.folder, training=training, alerts=config.alerts)


def announce(event: Event, config: EvaluationConfig, *, told_by: AlertName | None = None) -> bool:
    """Emit an event, say the same in the log, and send it to the targets; nothing where its cause was told before.

    Its resource carries `milepost.alert`: `sent` to the configuration's targets, `silenced` within
    `alerts.silence_hours` of one like it, or `send` where no target takes it. Whoever listens finds the `title` and
    `text` of a message for people beside the event's own fields.

    `told_by`: the alert that says the same already, whose targets get no second message. Returns whether people have
    it, or it waits to be delivered to them.
    """
    run_id = flow_run.id
    page = (flow_run.ui_url or "") if run_id else ""
    return announce_in(context_of(config), event, run_id=run_id or "", run_page=page, told_by=told_by)


def announce_in(
    context: AlertContext, event: Event, *, run_id: str, run_page: str, told_by: AlertName | None = None
) -> bool:
    """Announce an event as `announce` does; `run_id`, `run_page`: the flow run that it is about, else empty."""
    folder, now = alert_folder(context.fileroot), datetime.now(UTC)
    silence = timedelta(hours=context.alerts.silence_hours)
    record = make_record(folder, event, training=context.training, silence=silence, now=now)
    if record is None:
        logger.debug("%s: told before: %s", event.event, event.message)
        deliver_waiting(context.fileroot)
        return True
    logger.log(
        logging.INFO if isinstance(event, _GOOD_NEWS) else logging.WARNING,
        "%s%s: %s", event.event, " (silenced)" if record.silenced else "", event.message,
    )  # fmt: skip
    message = compose(event, context.training, run_page=run_page)
    deliveries = () if record.silenced else plan_deliveries(event, context.alerts, now=now, told_by=told_by)
    record = record.model_copy(update={**message._asdict(), "deliveries": deliveries, "told": False})
    if deliveries:
        # entered first: whatever becomes of this process, the messages are not lost
        is_entered = enter_waiting(folder, record)
        _emit(event, record, run_id)
        if not is_entered:
            return attempt(record, _send, now=now).told
        deliver_waiting(context.fileroot)
        return True
    # entered last: a process that is killed in between tells it again, and the server drops an id that it has seen
    is_told = _emit(event, record, run_id)
    enter_record(folder, record.model_copy(update={"told": is_told}))
    deliver_waiting(context.fileroot)
    return is_told


def deliver_waiting(fileroot: Path) -> datetime | None:
    """Send the messages of a fileroot that are due; return when the next attempt is due, None where nothing waits.

    Where one is, and a Prefect server has the deployment `follow-up`, that makes the next attempt.
    """
    next_at = deliver_due(alert_folder(fileroot), _send, now=datetime.now(UTC))
    if next_at is not None and has_lasting_server():
        try:
            with get_client(sync_client=True) as client:
                _plan_follow_up(client, fileroot, next_at)
        except PREFECT_FAILURES as exc:
            logger.warning("the Prefect server takes no run of %s (%s); the next event tries again", FOLLOW_UP, exc)
    return next_at


def _plan_follow_up(client: SyncPrefectClient, fileroot: Path, next_at: datetime) -> None:
    try:
        deployment = client.read_deployment_by_name(FOLLOW_UP)
    except ObjectNotFound:
        return  # deployed by an earlier version, or not at all
    client.create_flow_run_from_deployment(
        deployment.id,
        parameters={"fileroot": str(fileroot.absolute())},
        state=Scheduled(scheduled_time=next_at + _CLOCKS_DIFFER),
        name="deliver alerts that wait",
        idempotency_key=key_of_delivery(fileroot, next_at),
    )


def key_of_delivery(fileroot: Path, next_at: datetime) -> str:
    """Return what is equal for two who plan the same delivery.

    Two messages may be due within one second: a coarser time would take the later for one that was planned before.
    """
    return f"milepost-alerts-{fileroot.absolute()}-{next_at.astimezone(UTC).isoformat()}"


def follow_up_run(client: SyncPrefectClient, run_id: UUID) -> None:
    """Have people alerted of a run that has crashed, if the deployment `follow-up` is there.

    The server's own automation does so too, but after a restart of the server 15 minutes later, as it waits that long
    for events from before the restart.
    """
    try:
        deployment = client.read_deployment_by_name(FOLLOW_UP)
    except ObjectNotFound:
        return
    client.create_flow_run_from_deployment(
        deployment.id, parameters={"flow_run": str(run_id)}, idempotency_key=f"milepost-follow-up-{run_id}"
    )


def read_address(secret: str) -> str:
    """Return the address that a configuration names: that of the server's Secret block, else of the environment.

    Raises:
        SetupError: neither has it.
        TransientError: the server does not tell.
    """
    block = name_block(secret)
    if has_lasting_server():
        try:
            with get_client(sync_client=True) as client:
                document = client.read_block_document_by_name(block, "secret", include_secrets=True)
            return str(document.data["value"])
        except (ObjectNotFound, LookupError):
            pass
        except PREFECT_FAILURES as exc:
            raise TransientError(f"the Prefect server does not tell the Secret block {block} ({exc})") from exc
    address = find_in_environment(secret)
    if address:
        return address
    raise SetupError(
        f"nobody tells the address {secret}: this process has no such variable, and no Prefect server the Secret block "
        f"{block}; `milepost deploy CONFIG` puts it there"
    )


def _send(delivery: Delivery, record: AlertRecord) -> None:
    address = read_address(delivery.secret)
    check_address(delivery.target, delivery.secret, address)
    send_message(delivery.target, address, title=record.title, text=record.text)


def has_lasting_server() -> bool:
    """Whether a Prefect server is named that goes on after this command."""
    api_url = PREFECT_API_URL.value()
    return bool(api_url) and not is_own_server(api_url)


def _emit(event: Event, record: AlertRecord, run_id: str) -> bool:
    """Hand an event to the Prefect server and return whether people may have heard of it."""
    if not PREFECT_API_URL.value():
        return False
    labels: Mapping[str, str] = {
        "prefect.resource.id": f"milepost.{event.resource}",
        "milepost.alert": "silenced" if record.silenced else "sent" if record.deliveries else "send",
    }
    flow_run_labels = {"prefect.resource.id": f"prefect.flow-run.{run_id}", "prefect.resource.role": "flow-run"}
    emitted = PrefectEvent(
        id=UUID(record.event_id),
        event=event.event,
        resource=Resource(dict(labels)),
        related=[RelatedResource(flow_run_labels)] if run_id else [],
        payload=event.model_dump(mode="json") | {"title": record.title, "text": record.text},
    )
    try:
        with get_client(sync_client=True) as client:  # emit_event would only queue it
            client.request("POST", "/events", content=f"[{emitted.model_dump_json()}]")
    except PREFECT_FAILURES as exc:
        again = "" if record.deliveries else "; it is told when it is met again"
        logger.warning("the Prefect server does not take %s (%s)%s", event.event, exc, again)
        return False
    return has_lasting_server()


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
        problem=digest_problem(error),
    )
    announce(event, config, told_by="inconsistency" if isinstance(error, ReplicasDisagreeError) else None)


def dataset_of(config: EvaluationConfig) -> str:
    """Return the name that the runs of an evaluation give its dataset."""
    try:
        return dataset_name(config.valid_dataset)
    except DatasetError:
        return config.valid_dataset.path
