"""Automations of the Prefect server, upserted by name: events that start deployments, events that become messages.

The address of a target is a secret: it comes from the environment or a Secret block, goes into a notification block of
the server, which keeps it encrypted, and is neither logged nor part of an error.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, cast
from uuid import UUID

from prefect.blocks.core import Block
from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook
from prefect.blocks.system import Secret
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.actions import RunDeployment, SendNotification
from prefect.events.schemas.automations import Automation, AutomationCore, EventTrigger
from prefect.types import SecretDict
from pydantic import SecretStr

from schemas.alerts import AlertName, AlertsConfig, AlertTarget, TargetKind
from schemas.deployment import Change, Registration, TriggerSpec
from schemas.errors import ConfigError
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

_EVENTS: Final[dict[AlertName, type[Event]]] = {
    "landed": CheckpointLanded,
    "completed": EvaluationCompleted,
    "failed": EvaluationFailed,
    "drift": DriftDetected,
    "inconsistency": ConsistencyViolated,
    "regression": RegressionDetected,
    "degenerate": GenerationDegenerate,
}
_BLOCK_TYPES: Final[dict[TargetKind, type[Block]]] = {
    "slack": SlackWebhook,
    "webhook": CustomWebhookNotificationBlock,
    "email": SlackWebhook,
    "apprise": SlackWebhook,
}
"""Prefect's block for Slack takes every address that apprise knows."""
_CRASHED: Final = "prefect.flow-run.Crashed"
"""What the server says of a run whose process is gone: nobody else can."""
_CRASH_SILENCE: Final = timedelta(hours=24)
"""Time in which crashes of one evaluation are told once: attempts that end alike follow each other within hours."""

_SUBJECT: Final = "{{ event.payload.title }}"
_BODY: Final = "{{ event.payload.text }}"
_CRASH_SUBJECT: Final = "Milepost: an evaluation crashed: {{ flow_run.name }}"
_CRASH_BODY: Final = """Its process ended without a word, as after a kill or a reboot. What is finished is kept: the \
same evaluation goes on where it stopped.
run: {{ flow_run|ui_url }}"""


def upsert_trigger(
    client: SyncPrefectClient, spec: TriggerSpec, registered: TriggerSpec | None, deployment_id: str
) -> Registration | None:
    """Make the server hold the automation that starts a deployment on an event.

    Where `registered`, what it was declared as last time, is what it is declared as now, an automation that somebody
    has edited or deleted is left so; of a deleted one nothing is returned.
    """
    held = next(iter(client.read_automations_by_name(spec.name)), None)
    if registered == spec:
        if held is None:
            return None
        if _content(held) != _content(_automation_of(spec, deployment_id).model_copy(update={"enabled": held.enabled})):
            return Registration(kind="automation", name=spec.name, id=str(held.id), change="unchanged")
    return _upsert(client, _automation_of(spec, deployment_id))


def _automation_of(spec: TriggerSpec, deployment_id: str) -> AutomationCore:
    trigger = EventTrigger.model_validate(spec.model_dump(include=set(EventTrigger.model_fields)))
    action = RunDeployment(
        source="selected", deployment_id=UUID(deployment_id), parameters=dict(spec.parameters), job_variables=None
    )
    return AutomationCore(
        name=spec.name, description=spec.description, enabled=spec.enabled, trigger=trigger, actions=[action]
    )


def read_targets(config: AlertsConfig | None) -> dict[TargetKind, Block]:
    """Return the notification block of each target of `config`, its address read.

    Raises:
        ConfigError: the address of a target is absent or no address; it is not shown.
    """
    return {kind: _notification_block(kind, target) for kind, target in (config.targets if config else {}).items()}


def upsert_alerts(
    client: SyncPrefectClient, config: AlertsConfig | None, blocks: Mapping[TargetKind, Block]
) -> list[Registration]:
    """Make the server send what `config` asks for to `blocks`, and hold nothing of targets that it does not name."""
    done: list[Registration] = []
    for kind, block_type in _BLOCK_TYPES.items():
        wanted: list[AutomationCore] = []
        target = config.targets.get(kind) if config else None
        if config is not None and target is not None:
            saved = _save_block(blocks[kind], f"milepost-{kind}")
            wanted = _alert_automations(kind, config.events_of(target), UUID(saved.id))
            done.append(saved)
        done.extend(_upsert(client, automation) for automation in wanted)
        done.extend(_remove(client, set(_automation_names(kind)) - {automation.name for automation in wanted}))
        if target is None:
            done.extend(_delete_block(block_type, f"milepost-{kind}"))
    return done


def _automation_names(kind: TargetKind) -> tuple[str, str]:
    return f"milepost alerts by {kind}", f"milepost alerts by {kind}: crashes"


def _alert_automations(kind: TargetKind, names: Sequence[AlertName], block_id: UUID) -> list[AutomationCore]:
    told, crashes = _automation_names(kind)
    automations: list[AutomationCore] = []
    if names:
        trigger = EventTrigger(
            expect={_EVENTS[name].event for name in names},
            match={"prefect.resource.id": "milepost.*", "milepost.alert": "send"},
            for_each={"prefect.resource.id"},
            within=timedelta(0),
        )
        action = SendNotification(block_document_id=block_id, subject=_SUBJECT, body=_BODY)
        automations.append(AutomationCore(name=told, trigger=trigger, actions=[action]))
    if "failed" in names:
        trigger = EventTrigger(
            expect={_CRASHED},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={"prefect.resource.role": "flow", "prefect.resource.name": "evaluate"},
            # a run is named for its checkpoint and dataset, so that its retries count together; the server acts on the
            # first of the time
            for_each={"prefect.resource.name"},
            threshold=1,
            within=_CRASH_SILENCE,
        )
        action = SendNotification(block_document_id=block_id, subject=_CRASH_SUBJECT, body=_CRASH_BODY)
        automations.append(AutomationCore(name=crashes, trigger=trigger, actions=[action]))
    return automations


def _notification_block(kind: TargetKind, target: AlertTarget) -> Block:
    address = _read_secret(kind, target.secret)
    if kind == "email" and "format=" not in address:
        address += f"{'&' if '?' in address else '?'}format=text"  # the default is HTML, where line breaks are nothing
    if kind == "webhook":
        if not address.startswith(("http://", "https://")):
            raise ConfigError(f"alerts.webhook: what {target.secret} holds is no http(s) URL; it is not shown here")
        return CustomWebhookNotificationBlock(
            name="milepost",
            url="{{url}}",
            json_data={"title": "{{subject}}", "message": "{{body}}"},
            secrets=SecretDict({"url": address}),
            headers=None,
            cookies=None,
        )
    from apprise import Apprise

    if not Apprise().add(address):
        example = {"slack": "https://hooks.slack.com/services/…", "email": "mailtos://user:password@host?to=…"}
        raise ConfigError(
            f"alerts.{kind}: what {target.secret} holds is no address that apprise knows, such as "
            f"{example.get(kind, 'ntfy://topic')}; it is not shown here"
        )
    return SlackWebhook(url=SecretStr(address))


def _read_secret(kind: TargetKind, secret: str) -> str:
    source, _, name = secret.partition(":")
    if source == "env":
        address = os.environ.get(name, "").strip()
        if not address:
            raise ConfigError(
                f"alerts.{kind}.secret is {secret}, and {name} is not set; export it for `milepost deploy`"
            )
        return address
    try:
        return str(cast("Secret[str]", Secret.load(name)).get())
    except ValueError as exc:
        raise ConfigError(
            f"alerts.{kind}.secret is {secret}, and the server has no Secret block {name!r}; make one in its UI under "
            "Blocks, or name an environment variable"
        ) from exc


def _save_block(block: Block, name: str) -> Registration:
    held = _load_block(type(block), name)
    if held is not None and held.model_dump() | block.model_dump() == held.model_dump():
        return Registration(kind="alert target", name=name, id=_block_id(held), change="unchanged")
    saved = block.save(name, overwrite=True)
    change: Change = "created" if held is None else "updated"
    return Registration(kind="alert target", name=name, id=str(saved), change=change)


def _delete_block(block_type: type[Block], name: str) -> list[Registration]:
    held = _load_block(block_type, name)
    if held is None:
        return []
    block_type.delete(name)
    return [Registration(kind="alert target", name=name, id=_block_id(held), change="removed")]


def _load_block(block_type: type[Block], name: str) -> Block | None:
    try:
        return cast("Block", block_type.load(name))
    except ValueError:
        return None  # how Prefect says that there is none


def _block_id(block: Block) -> str:
    return str(block._block_document_id)  # pyright: ignore[reportPrivateUsage] # no public name holds it


def _upsert(client: SyncPrefectClient, wanted: AutomationCore) -> Registration:
    held = next(iter(client.read_automations_by_name(wanted.name)), None)
    if held is None:
        made = client.create_automation(wanted)
        return Registration(kind="automation", name=wanted.name, id=str(made), change="created")
    wanted = wanted.model_copy(update={"enabled": held.enabled})
    if _content(held) == _content(wanted):
        return Registration(kind="automation", name=wanted.name, id=str(held.id), change="unchanged")
    # the client leaves out what was not set, such as a default, and the server asks for it; an owner it does not take
    content = wanted.model_dump(mode="json", exclude={"owner_resource"})
    client.update_automation(held.id, AutomationCore.model_validate(content))
    return Registration(kind="automation", name=wanted.name, id=str(held.id), change="updated")


def _content(automation: AutomationCore) -> dict[str, object]:
    """What an automation is, apart from its id; sets compare as sets."""
    return automation.model_dump(include=set(AutomationCore.model_fields) - {"owner_resource"})


def _remove(client: SyncPrefectClient, names: set[str]) -> list[Registration]:
    held: list[Automation] = [found for name in sorted(names) for found in client.read_automations_by_name(name)]
    for automation in held:
        client.delete_automation(automation.id)
    return [Registration(kind="automation", name=each.name, id=str(each.id), change="removed") for each in held]
