"""Work pools, their queues, and their base job template: it says which program a run is.

Prefect's own template lets every run of a pool of processes name its command. Whoever may start a run, from a form or
by the API, could run any program as the user of the worker.
"""

import asyncio
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final, NamedTuple

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import WorkPoolFilter, WorkPoolFilterName
from prefect.client.schemas.objects import WorkPool
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.workers.utilities import (
    get_available_work_pool_types,
    get_default_base_job_template_for_infrastructure_type,
)

from schemas.deployment import Change, Registration
from schemas.errors import ConfigError, SetupError

PROCESS: Final = "process"
"""Type of the pools whose runs are processes of the worker's machine, and see the files of this one."""
COMMAND: Final = "command"
"""Job variable that Prefect's template has, and ours has not."""
_PROGRAM: Final = "flows.run_process"

Template = Mapping[str, Any]


class Pool(NamedTuple):
    """The work pool that runs the deployments."""

    name: str
    """Name of the work pool."""
    type: str
    """Its type, such as process."""
    is_new: bool
    """Whether it is to be made."""
    is_closed: bool = True
    """Whether it names the command of its runs itself."""


def run_command() -> str:
    """Return the command of a run in this environment.

    Without one Prefect first starts a process that prepares the folder, and imports all of Prefect twice.
    """
    return shlex.join([sys.executable, "-P", "-m", _PROGRAM])


def close_template(template: Template) -> dict[str, Any]:
    """Return the template with the command of this environment, and without variables that it does not declare."""
    closed = deepcopy(dict(template))
    closed["job_configuration"] = {**closed.get("job_configuration", {}), COMMAND: run_command()}
    variables = {**closed.get("variables", {})}
    properties = {name: each for name, each in variables.get("properties", {}).items() if name != COMMAND}
    closed["variables"] = {**variables, "properties": properties, "additionalProperties": False}
    return closed


def is_closed(template: Template) -> bool:
    """Whether no run can name its command."""
    variables = template.get("variables", {})
    return variables.get("additionalProperties") is False and COMMAND not in variables.get("properties", {})


def new_pool(name: str, pool_type: str) -> WorkPoolCreate:
    """Return a pool to be made; one of processes is closed.

    Raises:
        ConfigError: Prefect knows no such type.
    """
    template = asyncio.run(get_default_base_job_template_for_infrastructure_type(pool_type))
    if template is None:
        known = sorted(asyncio.run(get_available_work_pool_types()))
        raise ConfigError(f"--work-pool-type {pool_type!r} is unknown; allowed: {', '.join(known)}")
    if pool_type == PROCESS:
        template = close_template(template)
    return WorkPoolCreate(name=name, type=pool_type, base_job_template=template)


def ensure_closed_pool(client: SyncPrefectClient, name: str) -> None:
    """Make the pool, or close the one that is there; what its deployments said of the command is dropped."""
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        client.create_work_pool(new_pool(name, PROCESS))
        return
    if pool.type != PROCESS:
        return
    template = close_template(pool.base_job_template)
    if template == pool.base_job_template:
        return
    client.update_work_pool(name, WorkPoolUpdate(base_job_template=template))
    for deployment in client.read_deployments(work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[name]))):
        if COMMAND in deployment.job_variables:
            variables = {key: value for key, value in deployment.job_variables.items() if key != COMMAND}
            client.update_deployment(deployment.id, DeploymentUpdate(job_variables=variables))


def find_pool(client: SyncPrefectClient, name: str, pool_type: str | None, declared: str) -> Pool:
    """Return the pool of this name; `declared` is the one that prefect.yaml names.

    Raises:
        SetupError: it is of another type than `pool_type`, which None leaves open.
    """
    try:
        found = client.read_work_pool(name)
    except ObjectNotFound:
        return Pool(name, pool_type or PROCESS, is_new=True)
    if pool_type not in (None, found.type):
        raise SetupError(
            f"the work pool {name!r} is of type {found.type!r}, not {pool_type!r}; leave --work-pool-type out, "
            "or name another pool with --pool"
        )
    is_ours = found.type == PROCESS and name == declared
    return Pool(name, found.type, is_new=False, is_closed=is_ours or is_closed(found.base_job_template))


def ensure_pool(
    client: SyncPrefectClient, pool: Pool, queues: set[str | None], at_once: int | None
) -> list[Registration]:
    """Make the server hold the pool and its queues; `at_once` limits the runs of each queue, None leaves that."""
    change: Change = "unchanged"
    if pool.is_new:
        with suppress(ObjectAlreadyExists):  # a worker of it that starts just now was quicker
            client.create_work_pool(new_pool(pool.name, pool.type))
            change = "created"
    elif pool.type == PROCESS and pool.is_closed:
        ensure_closed_pool(client, pool.name)
    found = client.read_work_pool(pool.name)
    done = [Registration(kind="work pool", name=found.name, id=str(found.id), change=change)]
    return done + [_ensure_queue(client, found, name, at_once) for name in sorted(filter(None, queues))]


def _ensure_queue(client: SyncPrefectClient, pool: WorkPool, name: str, at_once: int | None) -> Registration:
    change: Change = "unchanged"
    try:
        queue = client.read_work_queue_by_name(name, work_pool_name=pool.name)
    except ObjectNotFound:
        queue = client.create_work_queue(name, work_pool_name=pool.name)
        change = "created"
        at_once = at_once or 1
    if at_once is not None and queue.concurrency_limit != at_once:
        client.update_work_queue(queue.id, concurrency_limit=at_once)
        change = change if change == "created" else "updated"
    return Registration(kind="work queue", name=f"{pool.name}/{name}", id=str(queue.id), change=change)
