"""The section `alerts`: who is told of what, from when on, and how often."""

import re
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, field_validator
from pydantic.config import JsonDict

from schemas.base import Model, Section

AlertName = Literal["landed", "completed", "failed", "drift", "inconsistency", "regression", "degenerate"]
TargetKind = Literal["slack", "webhook", "email", "apprise"]

_SECRET: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|block:[a-z0-9][a-z0-9-]*")
_SECRET_RULE: Final[JsonDict] = {
    "allowed": "env:NAME of an environment variable, or block:NAME of a Prefect Secret block"
}


def _checked_secret(value: str) -> str:
    if not _SECRET.fullmatch(value):
        raise ValueError("it names where the address is kept; the address itself holds a token and stays out of files")
    return value


class Delivery(Model):
    """One message of an alert to one target."""

    target: TargetKind
    """Kind of the target."""
    secret: str
    """Place of the target's address, as in the configuration."""
    delivered_at: datetime | None = None
    """Time at which the target took the message; None while it waits."""
    num_attempts: int = 0
    """Attempts until now."""
    next_at: datetime | None = None
    """Earliest time of the next attempt; None where none is made any more."""
    error: str = ""
    """Reason for which the last attempt failed."""


class AlertRecord(Model):
    """What is kept of an event, so that its cause is told once."""

    event: str
    """Name of the event."""
    event_id: str
    """Id of the event; the same for the same cause."""
    resource: str
    """What it is about."""
    subject: str
    """What silence is kept about, within a training."""
    training: str = ""
    """The training, as `experiment/trial`."""
    checkpoint: str
    """The checkpoint, as the user named it."""
    occurred_at: datetime
    """Time of the event, with its time zone."""
    message: str
    """What happened, how much, against what."""
    silenced: bool
    """Whether no message was sent, as one about the same subject had been a short time before."""
    told: bool = True
    """Whether every target has it; without targets, whether a Prefect server that goes on after the command has the
    event."""
    title: str = ""
    """Title of the message."""
    text: str = ""
    """Text of the message."""
    deliveries: tuple[Delivery, ...] = ()
    """The message to each target; empty where the configuration sends it to none."""
    ended: bool = False
    """Whether its cause has ended since, as a failure's does when an evaluation completes: met again, it is news."""

    @property
    def undelivered(self) -> tuple[Delivery, ...]:
        """The messages that their targets do not have yet."""
        return tuple(each for each in self.deliveries if each.delivered_at is None)


class AlertTarget(Section):
    """One place where alerts are sent."""

    secret: Annotated[str, AfterValidator(_checked_secret)] = Field(json_schema_extra=_SECRET_RULE)
    """Place of the target's address. `env:NAME` is read by `milepost deploy`, which hands it to the Prefect server as
    the secret of a notification block; `block:NAME` is read from the server."""
    events: tuple[AlertName, ...] | None = None
    """What is sent there. None: what `alerts.on` names."""

    @field_validator("events", mode="before")
    @classmethod
    def _accept_one_name(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class RegressionConfig(Section):
    """From when on a drop is a regression."""

    enabled: bool = True
    """Whether each run is compared with earlier ones of the same dataset version and settings."""
    minimum_effect: float = Field(default=0.02, ge=0, le=1)
    """Smallest drop of the mean score that counts, however significant. 2 points: below that, few teams would act."""
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """Share of false alarms accepted over all looks of a training run."""


class DegenerationConfig(Section):
    """From when on the completions are no longer those of a working model."""

    enabled: bool = True
    """Whether the completions are looked at."""
    max_stopped_by_length: float | None = Field(default=0.5, ge=0, le=1)
    """Share of completions cut at the longest length above which a run is degenerate. None: not looked at."""
    max_without_answer: float | None = Field(default=0.5, ge=0, le=1)
    """Share of completions without an answer above which it is. None: not looked at."""
    max_repeating: float | None = Field(default=0.2, ge=0, le=1)
    """Share of completions that repeat themselves without end above which it is. None: not looked at."""


class AlertsConfig(Section):
    """Who is told of what. `milepost deploy` puts it into effect; without a target nothing is sent."""

    slack: AlertTarget | None = None
    """A Slack channel: the address is that of an incoming webhook."""
    webhook: AlertTarget | None = None
    """Any service that takes a POST of JSON with `title` and `message`: the address is its http(s) URL."""
    email: AlertTarget | None = None
    """A mailbox: the address is an apprise URL, mailtos://user:password@host?to=someone@example.org."""
    apprise: AlertTarget | None = None
    """Anything else that apprise knows (Teams, Discord, PagerDuty, ntfy, …): the address is its apprise URL."""
    on: tuple[AlertName, ...] = ("failed", "drift", "inconsistency", "regression", "degenerate")
    """What is sent. The default leaves out what happens every hour and asks for nothing."""
    silence_hours: float = Field(default=0.0, ge=0, le=8760)
    """Hours after an alert in which another of the same kind about the same dataset, of the same experiment and trial,
    is not sent. 0: each cause is told, once; runs of one training may have many."""
    regression: RegressionConfig = Field(default_factory=RegressionConfig)
    """From when on a drop is a regression."""
    degeneration: DegenerationConfig = Field(default_factory=DegenerationConfig)
    """From when on the completions are no longer those of a working model."""

    @field_validator("on", mode="before")
    @classmethod
    def _accept_one_name(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @property
    def targets(self) -> dict[TargetKind, AlertTarget]:
        """The configured targets by kind."""
        kinds: dict[TargetKind, AlertTarget | None] = {
            "slack": self.slack,
            "webhook": self.webhook,
            "email": self.email,
            "apprise": self.apprise,
        }
        return {kind: target for kind, target in kinds.items() if target is not None}

    def events_of(self, target: AlertTarget) -> tuple[AlertName, ...]:
        """What is sent to a target."""
        return self.on if target.events is None else target.events
