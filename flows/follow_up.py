"""The flow `follow-up`: what nobody else is left to say or to do.

A run whose process is gone cannot say so, and holds its place in the queue; one whose parameters fit no more fails
before a line of Milepost runs; a message whose target was away waits. The server's automations and whoever left
something behind start this flow.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed
from prefect.utilities.urls import url_for
from pydantic import JsonValue, ValidationError

from flows.orchestration.deployment_launcher import WORKING_DIR
from schemas.alerts import AlertsConfig
from schemas.config import EvaluationConfig
from schemas.events import CheckpointLanded, EvaluationFailed
from tasks.alerts.ledger import digest_words
from tasks.alerts.task import AlertContext, announce_in, context_of, dataset_of, deliver_waiting

HEARTBEAT: Final = "prefect.flow-run.heartbeat"
"""Event that the process of a run emits every `PREFECT_FLOWS_HEARTBEAT_FREQUENCY` seconds of prefect.yaml."""
_LISTEN_S: Final = 75.0
"""Two and a half heartbeats: a server that was away has heard none meanwhile, and the run lives."""
_LISTEN_POLL_S: Final = 5.0
_ANY_TIME: Final = ("2000-01-01T00:00:00Z", "9999-01-01T00:00:00Z")
"""The server's own default leaves out events of a clock that is ahead."""
_RUN_RESOURCE: Final = "prefect.flow-run."
_KEPT: Final = "what is finished is kept: the same evaluation goes on where it stopped"

logger = logging.getLogger(__name__)


@flow(name="follow-up", description="End a run whose process is gone, alert people of it, and deliver what waits")
def follow_up(
    config: dict[str, JsonValue] | None = None,
    flow_run: str | None = None,
    landed: dict[str, JsonValue] | None = None,
    fileroot: str | None = None,
) -> None:
    """Follow up a run or an event, and deliver the alerts that wait.

    Args:
        config: The configuration as it was deployed; not checked, as an upgrade may have made it invalid.
        flow_run: Id of a flow run that has crashed, failed before it began, or gives no sign of life.
        landed: Payload of a trainer's event that a checkpoint has landed.
        fileroot: Folder whose alerts wait; null for that of the configuration.
    """
    context = read_context(config or {})
    if flow_run is not None:
        followed = _follow_run(flow_run.removeprefix(_RUN_RESOURCE))
        context = followed or context
    if landed is not None:
        announce_in(context, _read_landed(landed), run_id="", run_page="")
    deliver_waiting(context.fileroot if fileroot is None else Path(fileroot))


def read_context(config: Mapping[str, JsonValue]) -> AlertContext:
    """Return what alerts need of a configuration, also of one that is not valid any more."""
    try:
        return context_of(EvaluationConfig.model_validate(config))
    except ValidationError:
        logger.warning("the configuration is not valid; its alerts are read all the same")
    named = {name: value for name, value in config.items() if isinstance(value, str)}
    cluster = config.get("cluster")
    fileroot = cluster.get("fileroot") if isinstance(cluster, dict) else None
    try:
        alerts = AlertsConfig.model_validate(config.get("alerts") or {})
    except ValidationError as exc:
        logger.warning("section alerts cannot be read, so nobody can be told: %s", exc)
        alerts = AlertsConfig()
    return AlertContext(
        fileroot=Path(str(fileroot or "milepost-out")).expanduser(),
        training=f"{named.get('experiment_name', 'milepost')}/{named.get('trial_name', 'trial0')}",
        alerts=alerts,
    )


def describe_end(run: FlowRun) -> EvaluationFailed:
    """Return the event about a run that ended without its own word."""
    raw = run.parameters.get("config")
    config: Mapping[str, JsonValue] = raw if isinstance(raw, dict) else {}
    state = run.state
    said = (state.message if state else "") or "no reason given"
    is_crash = state is not None and state.is_crashed()
    return EvaluationFailed(
        checkpoint=str(run.parameters.get("checkpoint_path") or run.parameters.get("root") or _at(config, "actor")),
        global_step=None,
        dataset=_dataset_of(config),
        message=f"the flow run crashed: {said.strip().rstrip('.')}; {_KEPT}"
        if is_crash
        else f"the parameters of the flow run are not valid, as after an upgrade: {said.strip()}",
        run_id="",
        error="Crashed" if is_crash else "InvalidParameters",
        problem="" if is_crash else digest_words(said),
    )


def _follow_run(run_id: str) -> AlertContext | None:
    """End a run that nobody is at, and alert people of its end; None where the run is unknown."""
    with get_client(sync_client=True) as client:
        try:
            run = client.read_flow_run(UUID(run_id))
        except ObjectNotFound:
            return None
        if run.state is not None and not run.state.is_final():
            _end_if_silent(client, run)
            run = client.read_flow_run(run.id)
        folder = _read_folder(client, run)
    raw = run.parameters.get("config")
    context = read_context(raw if isinstance(raw, dict) else {})
    context = replace(context, fileroot=folder / context.fileroot)
    if run.state is not None and (run.state.is_crashed() or run.state.is_failed()):
        page = url_for("flow-run", run.id) or ""
        announce_in(context, describe_end(run), run_id=str(run.id), run_page=page)
    return context


def _read_folder(client: SyncPrefectClient, run: FlowRun) -> Path:
    """Return the folder that a run's relative paths start from; it need not be that of this flow's run."""
    variables = dict(run.job_variables or {})
    if WORKING_DIR not in variables and run.deployment_id is not None:
        with suppress(ObjectNotFound):
            variables = client.read_deployment(run.deployment_id).job_variables
    return Path(str(variables.get(WORKING_DIR) or "."))


def _end_if_silent(client: SyncPrefectClient, run: FlowRun) -> None:
    """Have the server say that a run is over whose process gives no sign of life: it holds a place in the queue."""
    began, heard = time.monotonic(), _read_heartbeats(client, run.id)
    while time.monotonic() - began < _LISTEN_S:
        time.sleep(_LISTEN_POLL_S)
        state = client.read_flow_run(run.id).state
        if state is None or state.is_final() or state.is_scheduled() or _read_heartbeats(client, run.id) != heard:
            logger.info("%s goes on, or has ended by itself", run.name)
            return
        if run.state is not None and state.type != run.state.type:
            return
    why = f"nobody is at this run, which was {run.state.name if run.state else 'Running'}: its process is gone"
    is_unwanted = run.state is not None and run.state.is_cancelling()
    end: State[object] = Cancelled(message=why) if is_unwanted else Crashed(message=why)
    client.set_flow_run_state(run.id, end, force=True)
    logger.warning("%s: %s", run.name, why)


def _read_heartbeats(client: SyncPrefectClient, run_id: UUID) -> tuple[int, str]:
    """Return how many heartbeats of a run the server has, and the id of the newest; clocks do not matter."""
    wanted = {
        "event": {"name": [HEARTBEAT]},
        "resource": {"id": [f"{_RUN_RESOURCE}{run_id}"]},
        "occurred": {"since": _ANY_TIME[0], "until": _ANY_TIME[1]},
    }
    page = client.request("POST", "/events/filter", json={"filter": wanted, "limit": 1}).json()
    return page["total"], page["events"][0]["id"] if page["events"] else ""


def _read_landed(payload: Mapping[str, JsonValue]) -> CheckpointLanded:
    """Return the event of a payload, which holds the words of a message as well, or the checkpoint's folder alone."""
    fields = {name: value for name, value in payload.items() if name in CheckpointLanded.model_fields}
    defaults: dict[str, JsonValue] = {
        "global_step": None,
        "message": "The trainer has saved the checkpoint.",
        "weight_digest": None,
        "announced_by": "trainer",
    }
    return CheckpointLanded.model_validate(defaults | fields)


def _dataset_of(config: Mapping[str, JsonValue]) -> str:
    try:
        return dataset_of(EvaluationConfig.model_validate(config))
    except ValidationError:
        return _at(config, "valid_dataset")


def _at(config: Mapping[str, JsonValue], section: str) -> str:
    found = config.get(section)
    return str(found.get("path", "")) if isinstance(found, dict) else ""
