"""The file prefect.yaml as Milepost reads it, and what `milepost deploy` reports.

Prefect takes a misspelt key of that file for one that is not there; here it is an error.
"""

from datetime import datetime
from typing import Literal, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from schemas.base import Model, Section

Change = Literal["created", "updated", "unchanged", "removed"]


class ConcurrencySpec(Section):
    """How many runs of a deployment there may be at once."""

    limit: int = Field(ge=1)
    """Runs."""
    collision_strategy: Literal["ENQUEUE", "CANCEL_NEW"] = "ENQUEUE"
    """What becomes of one more: it waits."""
    grace_period_seconds: int | None = Field(default=None, ge=60, le=86_400)
    """Seconds that a run may take to start before its place is given to another. None: Prefect's own default."""


class ScheduleSpec(Section):
    """When a deployment runs by itself."""

    slug: str = Field(min_length=1)
    """Name of the schedule: by it, a schedule that was switched on or off in the UI is recognised."""
    cron: str | None = None
    """Cron line; exactly one of `cron` and `interval`."""
    interval: float | None = Field(default=None, gt=0)
    """Seconds between runs."""
    anchor_date: datetime | None = None
    """A time at which the interval begins."""
    timezone: str = "UTC"
    """IANA name of the time zone that a cron line is read in."""
    active: bool = True
    """Whether it runs when it is registered for the first time."""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Parameters that differ from the deployment's."""

    @model_validator(mode="after")
    def _one_rhythm(self) -> Self:
        if (self.cron is None) == (self.interval is None):
            raise ValueError(f"schedule {self.slug!r} needs exactly one of cron and interval")
        return self


class TriggerSpec(Section):
    """Which event starts a run of a deployment."""

    type: Literal["event"]
    """Kind of trigger."""
    name: str
    """Name of the automation: by it, an automation that exists is recognised."""
    description: str = ""
    """For whoever finds it in the UI."""
    enabled: bool = True
    """Whether it acts when it is registered for the first time."""
    match: dict[str, str | list[str]]
    """Labels of the event's resource."""
    match_related: dict[str, str | list[str]] = Field(default_factory=dict)
    """Labels of a resource that the event is related to, such as the flow of a run."""
    after: tuple[str, ...] = ()
    """Names of the events after which those of `expect` have to come; empty: at any time."""
    expect: tuple[str, ...]
    """Names of the events."""
    for_each: tuple[str, ...] = ()
    """Labels whose values are counted apart."""
    posture: Literal["Reactive", "Proactive"] = "Reactive"
    """Whether it acts on what happens, or on what fails to happen `within` so many seconds."""
    threshold: int = Field(default=1, ge=1)
    """Events that it takes."""
    within: float = Field(default=0, ge=0)
    """Seconds in which they have to come."""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """Parameters of the run; templates see the event."""


class WorkPoolSpec(Section):
    """Where the runs of a deployment are executed."""

    name: str
    """Name of the work pool."""
    work_queue_name: str | None = None
    """Queue of the pool. None: its default queue."""
    job_variables: dict[str, JsonValue] = Field(default_factory=dict)
    """What the pool's template takes."""


class DeploymentSpec(Section):
    """One deployment."""

    name: str
    """Name of the deployment."""
    description: str
    """For the deployment's page."""
    entrypoint: str = Field(pattern=r"^[A-Za-z_][\w.]*\.[A-Za-z_]\w*$", json_schema_extra={"allowed": "module.flow"})
    """The flow, as package.module.function: it is imported, wherever the package is installed."""
    tags: tuple[str, ...] = ()
    """For the UI's filters."""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    """What the form holds when it is opened."""
    enforce_parameter_schema: bool = True
    """Whether the server refuses a run whose parameters do not fit."""
    concurrency_limit: ConcurrencySpec | None = None
    """Limit of runs at the same time. None: as many as its queue lets through."""
    schedules: tuple[ScheduleSpec, ...] = ()
    """Schedules by which it runs without being asked."""
    triggers: tuple[TriggerSpec, ...] = ()
    """Which events start it."""
    work_pool: WorkPoolSpec
    """Work pool that executes the runs."""


class RegisteredDeployment(Model):
    """What `milepost deploy` has registered last of a deployment: what the server holds beyond that, people have
    edited."""

    values: dict[str, JsonValue] = Field(default_factory=dict)
    """Description, tags, job variables and the like, by name; empty where an earlier version registered it."""
    schedules: dict[str, JsonValue] = Field(default_factory=dict)
    """What each declared schedule was, by slug."""
    triggers: dict[str, TriggerSpec] = Field(default_factory=dict)
    """What each declared trigger was, by name."""


class DeploymentFile(Model):
    """The whole file."""

    model_config = ConfigDict(validate_by_name=True)

    name: str
    """Name of the project."""
    prefect_version: str = Field(alias="prefect-version")
    """Version that the file was written for."""
    deployments: tuple[DeploymentSpec, ...] = Field(min_length=1)
    """The deployments."""


class Registration(Model):
    """What became of one thing on the server."""

    kind: Literal["work pool", "work queue", "GPU budget", "deployment", "automation", "alert target"]
    """Kind of the object on the server."""
    name: str
    """Name of the object on the server."""
    id: str
    """Id of the object on the server."""
    change: Change
    """What became of it."""


class DeployReport(Model):
    """What `milepost deploy` has done."""

    api_url: str
    """The server."""
    registrations: tuple[Registration, ...]
    """Everything that it looks after, whether it changed or not."""
