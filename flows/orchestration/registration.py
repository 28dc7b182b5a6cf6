"""Registers one deployment with a Prefect server; what people have edited of it in the UI stays.

What was registered last stands in a Prefect variable of each deployment. What the server holds now and differs from
that was edited; what prefect.yaml declares now and differs from that is new. An edit stays until the declaration of the
same value changes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate, VariableCreate, VariableUpdate
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions, DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.flows import Flow
from pydantic import JsonValue, ValidationError

from flows.orchestration.automations import upsert_trigger
from flows.orchestration.deployment_launcher import WORKING_DIR
from flows.orchestration.form import form_schema
from flows.orchestration.work_pools import COMMAND
from schemas.deployment import Change, DeploymentSpec, RegisteredDeployment, Registration, ScheduleSpec
from schemas.errors import ConfigError

_NOT_A_NAME: Final = re.compile(r"[^a-z0-9]+")
"""What the name of a variable may not hold."""
_OF_PROCESSES: Final[dict[str, JsonValue]] = {WORKING_DIR: None, COMMAND: None}
"""Job variables that only a pool of processes has."""
_EDITABLE: Final = (
    "description",
    "tags",
    "enforce_parameter_schema",
    "job_variables",
    "work_queue_name",
    "concurrency_limit",
)
"""What people may change of a deployment in the UI beside its parameters and schedules."""


def register(
    client: SyncPrefectClient, flow: "Flow[..., Any]", spec: DeploymentSpec, before: DeploymentResponse | None
) -> list[Registration]:
    """Make the server hold a deployment and its triggers; what people have edited of them stays."""
    name = f"{flow.name}/{spec.name}"
    declared = _values_of(flow, spec)
    schedules = [to_schedule(each, is_active=each.active) for each in spec.schedules]
    registered = _read_registered(client, spec.name) if before else RegisteredDeployment()
    if before is None:
        flow_id = client.create_flow_from_name(flow.name)
        created = client.create_deployment(flow_id, spec.name, schedules=schedules, pull_steps=[], **declared)
        done = [Registration(kind="deployment", name=name, id=str(created), change="created")]
    else:
        is_changed = _update(client, before, registered, declared) | _update_schedules(
            client, before, registered, schedules
        )
        change: Change = "updated" if is_changed else "unchanged"
        done = [Registration(kind="deployment", name=name, id=str(before.id), change=change)]
    for trigger in spec.triggers:
        automation = upsert_trigger(client, trigger, registered.triggers.get(trigger.name), done[0].id)
        done.extend([automation] if automation else [])
    now = RegisteredDeployment(
        values={key: value for key, value in declared.items() if key in _EDITABLE},
        schedules={each.slug or "": _schedule_content(each) for each in schedules},
        triggers={each.name: each for each in spec.triggers},
    )
    _write_registered(client, spec.name, now)
    return done


def _values_of(flow: "Flow[..., Any]", spec: DeploymentSpec) -> dict[str, Any]:
    """Return what is declared of a deployment, by the names of Prefect's client."""
    values: dict[str, Any] = {
        "description": spec.description,
        "tags": list(spec.tags),
        "entrypoint": spec.entrypoint,
        "parameters": dict(spec.parameters),
        "enforce_parameter_schema": spec.enforce_parameter_schema,
        "parameter_openapi_schema": form_schema(flow),
        "job_variables": dict(spec.work_pool.job_variables),
        "work_pool_name": spec.work_pool.name,
        "work_queue_name": spec.work_pool.work_queue_name,
    }
    if spec.concurrency_limit is not None:
        values["concurrency_limit"] = spec.concurrency_limit.limit
        values["concurrency_options"] = ConcurrencyOptions(
            collision_strategy=ConcurrencyLimitStrategy(spec.concurrency_limit.collision_strategy),
            grace_period_seconds=spec.concurrency_limit.grace_period_seconds,
        )
    return values


def _update(
    client: SyncPrefectClient, before: DeploymentResponse, registered: RegisteredDeployment, declared: dict[str, Any]
) -> bool:
    """Change what differs and was not edited, and return whether anything did; schedules are not touched."""
    known = set(declared["parameter_openapi_schema"]["properties"])
    parameters = {name: value for name, value in before.parameters.items() if name in known} | declared["parameters"]
    last = {"job_variables": _OF_PROCESSES} | registered.values  # an earlier version noted nothing
    limit = before.global_concurrency_limit.limit if before.global_concurrency_limit else None
    changed: dict[str, Any] = {}
    for name, value in (declared | {"parameters": parameters}).items():
        held = limit if name == "concurrency_limit" else getattr(before, name)
        wanted = merge(last.get(name), held, value) if name in _EDITABLE else value
        if held != wanted:
            changed[name] = wanted
    if {"work_pool_name", "work_queue_name"} & set(changed):  # a queue is named within its pool
        changed |= {"work_pool_name": declared["work_pool_name"], "work_queue_name": declared["work_queue_name"]}
    if changed:
        client.update_deployment(before.id, DeploymentUpdate(**changed))
    return bool(changed)


def _update_schedules(
    client: SyncPrefectClient,
    before: DeploymentResponse,
    registered: RegisteredDeployment,
    declared: Sequence[DeploymentScheduleCreate],
) -> bool:
    """Create and change what is declared anew, switch on what a new root wants on; return whether anything changed."""
    held = {each.slug: each for each in before.schedules if each.slug}
    changed = merge_schedules(registered.schedules, before, declared)
    switched_on = {
        each.slug or "": each for each in declared if each.active and not (each.slug in held and held[each.slug].active)
    }
    for slug, each in (switched_on | changed).items():
        found = held.get(slug)
        if found is None:
            client.create_deployment_schedules(before.id, [each])
        elif slug in changed:
            client.update_deployment_schedule(
                before.id, found.id, each.active, schedule=each.schedule, parameters=each.parameters
            )
        else:
            client.update_deployment_schedule(before.id, found.id, active=True)
    return bool(changed or switched_on)


def merge(registered: JsonValue, held: JsonValue, declared: JsonValue) -> JsonValue:
    """Return the value of a deployment: what is declared where that has changed, else what the server holds.

    Of mappings, each key counts for itself; a key that somebody has added stays.
    """
    if isinstance(held, dict) and isinstance(declared, dict):
        before = registered if isinstance(registered, dict) else {}
        added = {name: value for name, value in held.items() if name not in declared and name not in before}
        kept = {
            name: merge(before.get(name), held[name], value) if name in held else value
            for name, value in declared.items()
            if name in held or before.get(name) != value
        }
        return added | kept
    return declared if declared != registered else held


def merge_schedules(
    registered: Mapping[str, JsonValue], before: DeploymentResponse, declared: Sequence[DeploymentScheduleCreate]
) -> dict[str, DeploymentScheduleCreate]:
    """Return the declared schedules that are to be created or changed on the server, by slug.

    A schedule that somebody has edited or deleted stays so until its declaration changes; one without a declaration is
    left alone. What an earlier version of Milepost has registered counts as edited.
    """
    held = {each.slug: each for each in before.schedules if each.slug}
    changed: dict[str, DeploymentScheduleCreate] = {}
    for each in declared:
        slug, content = each.slug or "", _schedule_content(each)
        is_held, is_new = slug in held, registered.get(slug, content if slug in held else None) != content
        if is_new and (not is_held or _schedule_content(held[slug]) != content):
            changed[slug] = each
    return changed


def _schedule_content(schedule: DeploymentSchedule | DeploymentScheduleCreate) -> JsonValue:
    """Return when and with what a schedule runs, apart from whether it is on."""
    return cast("JsonValue", {**schedule.schedule.model_dump(mode="json"), "parameters": schedule.parameters})


def to_schedule(spec: ScheduleSpec, *, is_active: bool) -> DeploymentScheduleCreate:
    try:
        schedule = (
            CronSchedule(cron=spec.cron, timezone=spec.timezone)
            if spec.cron is not None
            else IntervalSchedule.model_validate(
                {"interval": spec.interval, "timezone": spec.timezone}
                | ({} if spec.anchor_date is None else {"anchor_date": spec.anchor_date})
            )
        )
    except ValidationError as exc:
        reasons = "; ".join(error["msg"] for error in exc.errors())
        raise ConfigError(
            f"schedule {spec.slug!r} ({spec.cron or spec.interval}, {spec.timezone}) is no schedule: {reasons}; a cron "
            "line has five fields, such as '0 2 * * *', and a time zone is an IANA name, such as Europe/Berlin"
        ) from exc
    return DeploymentScheduleCreate(
        schedule=schedule, active=is_active, parameters=cast("dict[str, Any]", spec.parameters), slug=spec.slug
    )


def _read_registered(client: SyncPrefectClient, deployment: str) -> RegisteredDeployment:
    """Return what was registered last under this name; nothing where an earlier version of Milepost did so."""
    variable = client.read_variable_by_name(variable_of(deployment))
    try:
        return RegisteredDeployment.model_validate(variable.value if variable else {})
    except ValidationError:  # somebody has edited the variable itself
        return RegisteredDeployment()


def _write_registered(client: SyncPrefectClient, deployment: str, registered: RegisteredDeployment) -> None:
    """Remember what is registered now."""
    name, value = variable_of(deployment), registered.model_dump(mode="json")
    held = client.read_variable_by_name(name)
    if held is None:
        client.create_variable(VariableCreate(name=name, value=value, tags=["milepost"]))
    elif held.value != value:
        client.update_variable(VariableUpdate(name=name, value=value))


def variable_of(deployment: str) -> str:
    """Return the name of the variable that holds what was registered of a deployment."""
    # two underscores stand for the dot before the name of a set: `a.b-c` and `a-b.c` are two deployments
    words = "__".join(_NOT_A_NAME.sub("_", part) for part in deployment.lower().split("."))
    return f"milepost_registered_{words}"
