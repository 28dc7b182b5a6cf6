"""Deployments of several configurations on one Prefect server: each set of them has a name of its own.

The deployment `evaluate` of the set `grpo-7b` is `evaluate.grpo-7b`; the set without a name is `evaluate`. All share
`follow-up`, which reads the configuration of the run that it follows: two of them would alert people twice.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Final

from prefect.client.schemas.responses import DeploymentResponse
from pydantic import JsonValue

from schemas.config import EvaluationConfig
from schemas.deployment import DeploymentSpec, TriggerSpec
from schemas.errors import ConfigError

LANDED: Final = "milepost follow-up of a landed checkpoint"
"""Begin of the name of the trigger that only a configuration with the alert `landed` needs."""
SHARED: Final = "follow-up"
"""The deployment that all sets share."""
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MAX_NAME: Final = 40
"""Characters of a name; Prefect's lists show longer ones cut."""
_RESOURCE_ID: Final = "prefect.resource.id"
_ANY_CHECKPOINT: Final = "milepost.checkpoint.*"
_DEFAULT_EXPERIMENT: Final[str] = EvaluationConfig.model_fields["experiment_name"].default


def check_name(name: str) -> None:
    """Raise a ConfigError for a name that a set of deployments cannot have."""
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise ConfigError(
            f"--name is {name!r}; allowed: lower-case letters and digits in words with a dash between them, at most "
            f"{_MAX_NAME} characters, such as grpo-7b"
        )


def deployment_name(deployment: str, name: str) -> str:
    """Return what a deployment of prefect.yaml is called in the set of this name; an empty name is no name."""
    return f"{deployment}.{name}" if name else deployment


def set_of(deployment: str) -> str:
    """Return the name of the set that a deployment belongs to; an empty one for the set without a name."""
    return deployment.partition(".")[2]


def name_specs(specs: Sequence[DeploymentSpec], name: str) -> tuple[DeploymentSpec, ...]:
    """Return the deployments of a set, with the one that all sets share."""
    return tuple(each for spec in specs for each in _name_spec(spec, name)) if name else tuple(specs)


def _name_spec(spec: DeploymentSpec, name: str) -> Generator[DeploymentSpec]:
    triggers = spec.triggers
    if spec.name == SHARED:
        yield spec
        # it alone needs the configuration of the set: the event of a trainer names none
        triggers = tuple(each for each in triggers if each.name == LANDED)
    yield spec.model_copy(
        update={
            "name": deployment_name(spec.name, name),
            "tags": (*spec.tags, name),
            "triggers": tuple(each.model_copy(update={"name": f"{each.name} ({name})"}) for each in triggers),
        }
    )


def narrow_to_root(spec: DeploymentSpec, root: JsonValue) -> DeploymentSpec:
    """Return a deployment whose triggers heed only announced checkpoints in `root`: others belong to other sets."""

    def narrow(trigger: TriggerSpec) -> TriggerSpec:
        match = {label: _below(root) if value == _ANY_CHECKPOINT else value for label, value in trigger.match.items()}
        return trigger.model_copy(update={"match": match})

    return spec.model_copy(update={"triggers": tuple(map(narrow, spec.triggers))})


def _below(root: JsonValue) -> str:
    return f"{_ANY_CHECKPOINT.removesuffix('*')}{str(root).rstrip('/')}/*"


def check_replaced(
    specs: Sequence[DeploymentSpec], held: Mapping[str, DeploymentResponse | None], config: EvaluationConfig
) -> None:
    """Raise a ConfigError where deployments of the set evaluate another experiment than `config`."""
    for spec in specs:
        found, declared = held[spec.name], spec.parameters.get("config")
        before = found.parameters.get("config") if found else None
        if spec.name == SHARED or not isinstance(before, dict) or before == declared:
            continue
        experiment = before.get("experiment_name", _DEFAULT_EXPERIMENT)
        if experiment != config.experiment_name:
            slug = "-".join(re.findall("[a-z0-9]+", config.experiment_name.lower()))[:_MAX_NAME].rstrip("-") or "NAME"
            raise ConfigError(
                f"the deployment {spec.name!r} of this server evaluates experiment {experiment!r}, and CONFIG is of "
                f"experiment {config.experiment_name!r}; add --name {slug} to register it beside the other, or "
                "--replace to put it in the other's place"
            )
