"""The base job template of Milepost's work pool: it says which program a run is, and no run can ask for another.

Prefect's own template lets every run of a pool of processes name its command. Whoever may start a run, from a form or
by the API, could run any program as the user of the worker.
"""

import asyncio
import shlex
import sys
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import WorkPoolFilter, WorkPoolFilterName
from prefect.exceptions import ObjectNotFound
from prefect.workers.utilities import (
    get_available_work_pool_types,
    get_default_base_job_template_for_infrastructure_type,
)

from schemas.errors import ConfigError

PROCESS: Final = "process"
"""Type of the pools whose runs are processes of the worker's machine, and see the files of this one."""
COMMAND: Final = "command"
"""Job variable that Prefect's template has, and ours has not."""
_PROGRAM: Final = "flows.run_process"

Template = Mapping[str, Any]


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
