"""Automations of the Prefect server, upserted by name, and the addresses of alerts in its Secret blocks.

An address comes from the environment or from a Secret block, stays in a Secret block of the server, which keeps it
encrypted, and is neither logged nor part of an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args
from uuid import UUID

from prefect.blocks.system import Secret
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.actions import RunDeployment
from prefect.events.schemas.automations import Automation, AutomationCore, EventTrigger
from prefect.exceptions import ObjectNotFound
from pydantic import SecretStr

from infra.notifications import check_address
from schemas.alerts import AlertsConfig, TargetKind
from schemas.deployment import Change, Registration, TriggerSpec
from schemas.errors import ConfigError
from tasks.alerts.addresses import DEPLOYED_PREFIX, find_in_environment, name_block

_PAGE: Final = 200
"""Deployments that are asked for at once: the server's own limit."""
_EARLIER_AUTOMATIONS: Final = [
    f"milepost alerts by {kind}{suffix}" for kind in get_args(TargetKind) for suffix in ("", ": crashes")
]
"""What earlier versions of Milepost sent alerts by."""
_EARLIER_BLOCKS: Final = [
    (block_type, f"milepost-{kind}")
    for kind in get_args(TargetKind)
    for block_type in ("slack-webhook", "custom-webhook")
]
"""Where they kept the addresses: type and name of each block."""


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


def read_addresses(client: SyncPrefectClient, config: AlertsConfig | None) -> dict[str, str]:
    """Return the address of each target of `config`, by what the configuration calls the place where it is kept.

    Raises:
        ConfigError: the address of a target is absent or no address; it is not shown.
    """
    found: dict[str, str] = {}
    for kind, target in (config.targets if config else {}).items():
        found[target.secret] = _read_secret(client, kind, target.secret)
        check_address(kind, target.secret, found[target.secret])
    return found


def upsert_addresses(client: SyncPrefectClient, addresses: Mapping[str, str]) -> list[Registration]:
    """Make the server hold the addresses that came from the environment, and none that no deployment uses any more."""
    done = [_save_block(client, secret, address) for secret, address in addresses.items() if secret.startswith("env:")]
    used = _blocks_in_use(client)
    for document in client.read_block_documents_by_type("secret", include_secrets=False):
        name = document.name or ""
        if name.startswith(DEPLOYED_PREFIX) and name not in used:
            client.delete_block_document(document.id)
            done.append(Registration(kind="alert target", name=name, id=str(document.id), change="removed"))
    return done


def carry_over_addresses(client: SyncPrefectClient, config: AlertsConfig) -> list[Registration]:
    """Take over the addresses that an earlier version of Milepost has put into notification blocks."""
    done: list[Registration] = []
    for kind, target in config.targets.items():
        for block_type, name in _EARLIER_BLOCKS:
            held = _read_block(client, name, block_type) if name == f"milepost-{kind}" else None
            if held is not None and _read_block(client, name_block(target.secret)) is None:
                done.append(_save_block(client, target.secret, held.address))
    return done


def remove_earlier_alerts(client: SyncPrefectClient) -> list[Registration]:
    """Remove what an earlier version of Milepost sent alerts by: they would be sent twice."""
    done = remove_automations(client, _EARLIER_AUTOMATIONS)
    for block_type, name in _EARLIER_BLOCKS:
        try:
            held = client.read_block_document_by_name(name, block_type, include_secrets=False)
        except ObjectNotFound:
            continue
        client.delete_block_document(held.id)
        done.append(Registration(kind="alert target", name=name, id=str(held.id), change="removed"))
    return done


def remove_automations(client: SyncPrefectClient, names: Sequence[str]) -> list[Registration]:
    """Remove the automations of these names."""
    held: list[Automation] = [found for name in names for found in client.read_automations_by_name(name)]
    for automation in held:
        client.delete_automation(automation.id)
    return [Registration(kind="automation", name=each.name, id=str(each.id), change="removed") for each in held]


def _read_secret(client: SyncPrefectClient, kind: TargetKind, secret: str) -> str:
    source, _, name = secret.partition(":")
    if source == "env":
        address = find_in_environment(secret)
        if not address:
            raise ConfigError(
                f"alerts.{kind}.secret is {secret}, and {name} is not set; export it for `milepost deploy`"
            )
        return address
    found = _read_block(client, name)
    if found is None:
        raise ConfigError(
            f"alerts.{kind}.secret is {secret}, and the server has no Secret block {name!r}; make one in its UI under "
            "Blocks, or name an environment variable"
        )
    return found.address


class _HeldSecret(NamedTuple):
    """A Secret block of the server."""

    id: str
    """Id of the block on the server."""
    address: str
    """What it holds."""


def _read_block(client: SyncPrefectClient, name: str, block_type: str = "secret") -> _HeldSecret | None:
    try:
        document = client.read_block_document_by_name(name, block_type, include_secrets=True)
    except ObjectNotFound:
        return None
    held: dict[str, Any] = document.data
    inner = held.get("secrets")  # of a custom webhook
    address = held.get("value") or held.get("url") if not inner else inner.get("url")
    return _HeldSecret(str(document.id), str(address or ""))


def _blocks_in_use(client: SyncPrefectClient) -> set[str]:
    """Return the names of the Secret blocks that the deployments of the server name."""
    used: set[str] = set()
    offset = 0
    while page := client.read_deployments(limit=_PAGE, offset=offset):
        offset += _PAGE
        used |= {name_block(secret) for each in page for secret in secrets_in(each.parameters)}
    return used


def secrets_in(parameters: Mapping[str, Any]) -> set[str]:
    """Return where a deployment's configuration says that addresses are kept; a deployment of others has its own."""
    config = parameters.get("config")
    alerts = config.get("alerts") if isinstance(config, dict) else None
    targets = [alerts.get(kind) for kind in get_args(TargetKind)] if isinstance(alerts, dict) else []
    named = [target.get("secret") for target in targets if isinstance(target, dict)]
    return {secret for secret in named if isinstance(secret, str)}


def _save_block(client: SyncPrefectClient, secret: str, address: str) -> Registration:
    name = name_block(secret)
    held = _read_block(client, name)
    if held is not None and held.address == address:
        return Registration(kind="alert target", name=name, id=held.id, change="unchanged")
    saved = Secret(value=SecretStr(address)).save(name, overwrite=True)
    change: Change = "created" if held is None else "updated"
    return Registration(kind="alert target", name=name, id=str(saved), change=change)


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
