"""Registers what prefect.yaml declares with a Prefect server: what is there already and equal is left untouched."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound, ParameterTypeError
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.utilities.templating import apply_values
from pydantic import JsonValue, ValidationError

from flows.orchestration.automations import (
    carry_over_addresses,
    read_addresses,
    remove_automations,
    remove_earlier_alerts,
    upsert_addresses,
)
from flows.orchestration.deployment_launcher import WORKING_DIR
from flows.orchestration.gpu_budget import ensure_budget
from flows.orchestration.named_deployments import (
    LANDED,
    SHARED,
    check_name,
    check_replaced,
    name_specs,
    narrow_to_root,
    set_of,
)
from flows.orchestration.registration import register, to_schedule
from flows.orchestration.work_pools import COMMAND, PROCESS, Pool, ensure_pool, find_pool, run_command
from flows.preflight import check_dataset_elsewhere, check_layout_elsewhere
from schemas.alerts import AlertsConfig
from schemas.config import EvaluationConfig
from schemas.deployment import DeploymentFile, DeploymentSpec, DeployReport
from schemas.errors import ConfigError, SetupError
from tasks.alerts.task import PREFECT_FAILURES
from tasks.watching.root import find_root
from tasks.watching.settling import make_evaluation

PREFECT_FILE: Final = Path(__file__).parents[1] / "prefect.yaml"
"""The declarations that come with Milepost."""

_UNLIMITED_QUEUE: Final = "default"
"""Every pool has it; what runs there waits for evaluations instead of being one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the file does not declare, or what takes the place of that."""

    config: EvaluationConfig | None = None
    """What is evaluated, and who is alerted. None: what is held already, at first what the file says, and nobody."""
    root: Path | None = None
    """Folder of checkpoints that are looked after from now on. None: the one of before, at first what the file says,
    once switched on."""
    gpus: int | None = None
    """GPUs that all evaluations of the server take together. 0: no limit. None: what was said before."""
    pool: str | None = None
    """Name of the work pool. None: the one that the deployments have, at first the file's."""
    pool_type: str | None = None
    """Its type. None: the one that it has, of a new one that of processes."""
    at_once: int | None = None
    """Evaluations that it runs at once. None: as many as before, at first one."""
    name: str = ""
    """Name of this configuration's deployments. Empty: those without a name."""
    replaces: bool = False
    """Whether it may take the place of another experiment."""


def read_deployments(path: Path = PREFECT_FILE) -> tuple[DeploymentSpec, ...]:
    """Return the deployments that a file declares, with `{{ $NAME }}` taken from the environment.

    Raises:
        ConfigError: the file cannot be read, or a key, a cron line or a value in it is wrong.
    """
    try:
        tree = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeError, yaml.YAMLError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}; `milepost deploy` needs the one of the checkout") from exc
    try:
        specs = DeploymentFile.model_validate(tree).deployments
    except ValidationError as exc:
        lines = [f"  - {'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors()]
        raise ConfigError("\n".join([f"{path}: {len(lines)} problems", *lines])) from exc
    for schedule in (schedule for spec in specs for schedule in spec.schedules):
        to_schedule(schedule, is_active=False)
    return tuple(_with_environment(spec) for spec in specs)


def deploy(specs: Sequence[DeploymentSpec], wanted: Wanted) -> DeployReport:
    """Make the server at PREFECT_API_URL hold the pool, the deployments, their triggers and the alerts of the config.

    Raises:
        ConfigError: an alert's address, a deployment's parameter or what the configuration asks of the cluster cannot
            be used; nothing was registered.
        DatasetError: the dataset cannot be read or graded; nothing was registered.
        CheckpointError: the root cannot be watched; nothing was registered.
        SetupError: the server refuses, or the pool is of another type.
    """
    if wanted.name:
        check_name(wanted.name)
    specs = name_specs(specs, wanted.name)
    declared_pool = specs[0].work_pool.name
    flows = {spec.name: _load_flow(spec) for spec in specs}
    alerts = wanted.config.alerts if wanted.config else None
    with _refusals_translated(), get_client(sync_client=True) as client:
        held = {spec.name: _read_deployment(client, f"{flows[spec.name].name}/{spec.name}") for spec in specs}
        _check_config(specs, held, wanted)
        pools = [found.work_pool_name for name, found in held.items() if found and set_of(name) == wanted.name]
        pool_name = wanted.pool or next(filter(None, pools), declared_pool)
        pool = find_pool(client, pool_name, wanted.pool_type, declared_pool)
        if wanted.config is not None and pool.type == PROCESS:
            check_layout_elsewhere(wanted.config)
        if wanted.root is not None and pool.type == PROCESS:  # other pools have folders of their own
            evaluations = [make_evaluation(wanted.config)] if wanted.config else []
            wanted = replace(wanted, root=find_root(wanted.root, evaluations, is_patient=True))
        addresses = read_addresses(client, alerts)
        declared = {spec.name: [trigger.name for trigger in spec.triggers] for spec in specs}
        specs = _complete_specs(client, specs, wanted, pool, held)
        for spec in specs:
            _check_parameters(flows[spec.name], spec)
        if wanted.config is not None and pool.type == PROCESS:
            deployed = [found.parameters.get("config") for found in held.values() if found]
            check_dataset_elsewhere(wanted.config, deployed)
        queues = {spec.work_pool.work_queue_name for spec in specs} - {_UNLIMITED_QUEUE}
        done = ensure_pool(client, pool, queues, wanted.at_once)
        if wanted.gpus is not None:
            done += ensure_budget(client, wanted.gpus)
        for spec in specs:
            done.extend(register(client, flows[spec.name], spec, held[spec.name]))
            kept = {trigger.name for trigger in spec.triggers}
            done.extend(remove_automations(client, [name for name in declared[spec.name] if name not in kept]))
        if alerts is None:
            done.extend(carry_over_addresses(client, _alerts_of(specs)))
        done.extend(remove_earlier_alerts(client))
        done.extend(upsert_addresses(client, addresses))
        return DeployReport(api_url=str(client.api_url).rstrip("/"), registrations=tuple(done))


Held = Mapping[str, DeploymentResponse | None]
"""What the server holds of each deployment, by its name; None of one that it has not."""


def _check_config(specs: Sequence[DeploymentSpec], held: Held, wanted: Wanted) -> None:
    """Raise a ConfigError where a configuration is missing, or would take the place of another experiment's."""
    if wanted.config is None and wanted.name and not any(held[spec.name] for spec in specs if spec.name != SHARED):
        raise ConfigError(f"--name {wanted.name} is not deployed yet; give the CONFIG that it is to evaluate")
    if wanted.config is not None and not wanted.replaces:
        check_replaced(specs, held, wanted.config)


def _complete_specs(
    client: SyncPrefectClient, specs: Sequence[DeploymentSpec], wanted: Wanted, pool: Pool, held: Held
) -> tuple[DeploymentSpec, ...]:
    """Return what the deployments are to be; of those with a name, the one that all share stays as it is held."""
    if not wanted.name:
        return tuple(complete_spec(spec, wanted, pool, held[spec.name]) for spec in specs)
    (reconciled,) = (spec for spec in specs if "root" in spec.parameters)
    root = complete_spec(reconciled, wanted, pool, held[reconciled.name]).parameters["root"]
    is_root_known = root != reconciled.parameters["root"]
    done: list[DeploymentSpec] = []
    for spec in specs:
        before = held[spec.name]
        if spec.name != SHARED:
            narrowed = narrow_to_root(spec, root) if is_root_known else spec
            done.append(complete_spec(narrowed, wanted, pool, before))
            continue
        name = before.work_pool_name if before else None
        shared = pool if before is None else find_pool(client, name or pool.name, None, spec.work_pool.name)
        done.append(complete_spec(spec, Wanted(), shared, before))
    return tuple(done)


@contextmanager
def _refusals_translated() -> Generator[None]:
    try:
        yield
    except PREFECT_FAILURES as exc:
        raise SetupError(
            f"the Prefect server at PREFECT_API_URL refuses, or has gone away: {exc}; what was registered stays, and "
            "the same command goes on"
        ) from exc


def _with_environment(spec: DeploymentSpec) -> DeploymentSpec:
    variables: Any = apply_values(spec.work_pool.job_variables, {}, remove_notset=False)
    return spec.model_copy(update={"work_pool": spec.work_pool.model_copy(update={"job_variables": variables})})


def _load_flow(spec: DeploymentSpec) -> "Flow[..., Any]":
    try:
        return load_flow_from_entrypoint(spec.entrypoint)
    except (ImportError, AttributeError) as exc:
        raise ConfigError(
            f"deployment {spec.name!r}: {spec.entrypoint} is no flow that can be imported: {exc}"
        ) from exc


def complete_spec(
    spec: DeploymentSpec, wanted: Wanted, pool: Pool, before: DeploymentResponse | None
) -> DeploymentSpec:
    """Return what a deployment is to be: what is wanted, else what the server holds, else what the file declares.

    A schedule that the server holds stays on or off, but that a root that is new switches it on.
    """
    variables = {name: value for name, value in spec.work_pool.job_variables.items() if name != WORKING_DIR}
    if pool.type == PROCESS:
        # where relative paths of the configuration start; PWD is the shell's, which need not be where this process is
        folder = before.job_variables.get(WORKING_DIR) if before and wanted.config is None else None
        variables[WORKING_DIR] = folder or str(Path.cwd())
        if not pool.is_closed:
            variables[COMMAND] = run_command()
    held = before.parameters if before else {}
    parameters = {name: held.get(name, value) for name, value in spec.parameters.items()}
    if wanted.config is not None and "config" in parameters:
        parameters["config"] = wanted.config.model_dump(mode="json", exclude_defaults=True)
    is_active = {each.slug: each.active for each in before.schedules} if before else {}
    if wanted.root is not None and "root" in parameters and held.get("root") != str(wanted.root):
        parameters["root"] = str(wanted.root)
        is_active = {each.slug: True for each in spec.schedules}
    takes_landed = any(
        "landed" in alerts.events_of(target)
        for alerts in [_read_alerts(parameters)]
        for target in alerts.targets.values()
    )
    return spec.model_copy(
        update={
            "parameters": parameters,
            "triggers": tuple(each for each in spec.triggers if takes_landed or not each.name.startswith(LANDED)),
            "schedules": tuple(
                # one that somebody has deleted is off
                each.model_copy(update={"active": is_active.get(each.slug, each.active and before is None)})
                for each in spec.schedules
            ),
            "work_pool": spec.work_pool.model_copy(update={"name": pool.name, "job_variables": variables}),
        }
    )


def _alerts_of(specs: Sequence[DeploymentSpec]) -> AlertsConfig:
    """Return who is alerted by what is deployed."""
    return next((_read_alerts(spec.parameters) for spec in specs if "config" in spec.parameters), AlertsConfig())


def _read_alerts(parameters: Mapping[str, JsonValue]) -> AlertsConfig:
    config = parameters.get("config")
    alerts = config.get("alerts") if isinstance(config, dict) else None
    try:
        return AlertsConfig.model_validate(alerts or {})
    except ValidationError:  # the parameters as a whole are looked at afterwards
        return AlertsConfig()


def _check_parameters(flow: "Flow[..., Any]", spec: DeploymentSpec) -> None:
    try:
        flow.validate_parameters(dict(spec.parameters))
    except ParameterTypeError as exc:
        raise ConfigError(
            f"deployment {spec.name!r}: its parameters do not fit the flow: {exc}; give a CONFIG that does"
        ) from exc


def _read_deployment(client: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    try:
        return client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None
