"""The events that Milepost emits: typed payloads, one model per event.

    Event                       milepost.
    ├── CheckpointLanded            checkpoint.landed
    ├── DriftDetected               drift.detected
    └── RunEvent
        ├── EvaluationCompleted     evaluation.completed
        ├── EvaluationFailed        evaluation.failed
        ├── ConsistencyViolated     consistency.violated
        ├── RegressionDetected      regression.detected
        └── GenerationDegenerate    generation.degenerate

Whoever listens (an automation of Prefect's, say) gets `model_dump` as the payload, the name as the event, and
`milepost.<resource>` as the resource. Texts in it come from folders and datasets: data, never markup or a template.
"""

import json
from abc import ABC, abstractmethod
from typing import ClassVar, Final, Literal
from uuid import UUID, uuid5

from schemas.base import Model

_NAMESPACE: Final = UUID("0b6f3f0e-52c5-5d0c-9a86-6a1f4f8f2d11")


class Event(Model, ABC):
    """The base of every event."""

    event: ClassVar[str]
    """Name of the event."""
    title: ClassVar[str]
    """What it is called in the subject of a message."""

    checkpoint: str
    """The checkpoint, as the user named it; the folder of one that landed."""
    global_step: int | None
    """Training step of the checkpoint; None when unknown."""
    message: str
    """What happened, how much, against what: for people."""
    since: str = ""
    """Since when it is so, for people, such as the step of the checkpoint compared with; empty where unknown."""
    link: str = ""
    """Page or folder that shows it, such as the run's report; empty where there is none."""

    @property
    @abstractmethod
    def resource(self) -> str:
        """What it is about, as `<kind>.<id>`."""

    @property
    @abstractmethod
    def cause(self) -> tuple[str, ...]:
        """What makes two events one: a retry or a resumed run that finds the same has the same cause."""

    @property
    @abstractmethod
    def subject(self) -> str:
        """What silence after an alert is kept about."""

    @property
    def event_id(self) -> UUID:
        """The same for the same cause, wherever and however often it is met."""
        return uuid5(_NAMESPACE, json.dumps([self.event, *self.cause]))


class CheckpointLanded(Event):
    """A checkpoint is complete and can be evaluated."""

    event: ClassVar[str] = "milepost.checkpoint.landed"
    title: ClassVar[str] = "Checkpoint landed"

    weight_digest: str | None
    """Digest of the weights; None where they were not read, as in a trainer's own announcement."""
    identity_digest: str | None = None
    """Digest of weights, configuration, tokenizer and chat template; None where they were not read."""
    announced_by: Literal["trainer", "watcher"]
    """Announcer of the checkpoint. What a watcher announces it also evaluates; what a trainer announces waits for a
    deployment."""

    @property
    def resource(self) -> str:
        """The checkpoint; `watched-checkpoint` where the watcher evaluates it, so that no deployment does so too."""
        kind = "watched-checkpoint" if self.announced_by == "watcher" else "checkpoint"
        return f"{kind}.{self.weight_digest or self.checkpoint}"

    @property
    def cause(self) -> tuple[str, ...]:
        """The model, else folder and step."""
        return (self.identity_digest or self.weight_digest or self.checkpoint, str(self.global_step), self.announced_by)

    @property
    def subject(self) -> str:
        """The checkpoint: each is told."""
        return self.resource


class DriftDetected(Event):
    """What is asked now differs from the reference, or breaks the data contract."""

    event: ClassVar[str] = "milepost.drift.detected"
    title: ClassVar[str] = "Drift of the validation set"

    dataset: str
    """Name of the dataset."""
    reference_version: str
    """Version of the rows compared with."""
    current_version: str
    """Version of the rows compared."""
    features: tuple[str, ...]
    """Features that drifted."""
    broken_rules: tuple[str, ...]
    """Rules of the data contract that do not hold."""

    @property
    def resource(self) -> str:
        """The dataset."""
        return f"dataset.{self.dataset}"

    @property
    def cause(self) -> tuple[str, ...]:
        """The two versions, and what is wrong between them."""
        versions = (self.dataset, self.reference_version, self.current_version)
        return (*versions, *self.features, *self.broken_rules)

    @property
    def subject(self) -> str:
        """The dataset."""
        return self.dataset


class RunEvent(Event):
    """The base of the events about a run."""

    run_id: str
    """The run; of a failure before there was one, empty."""
    dataset: str
    """Name of the dataset."""

    @property
    def resource(self) -> str:
        """The run."""
        return f"run.{self.run_id}" if self.run_id else f"dataset.{self.dataset}"

    @property
    def cause(self) -> tuple[str, ...]:
        """The run."""
        return (self.run_id,)

    @property
    def subject(self) -> str:
        """The dataset: runs of one training follow each other every hour."""
        return self.dataset


class EvaluationCompleted(RunEvent):
    """A run is published."""

    event: ClassVar[str] = "milepost.evaluation.completed"
    title: ClassVar[str] = "Evaluation completed"

    accuracy: float | None
    """Accuracy over the whole dataset; None when undefined."""
    stderr: float | None
    """Standard error of the accuracy; None when undefined."""
    num_scored: int
    """Samples with a verdict on the model."""
    num_failed: int
    """Samples without one."""


class EvaluationFailed(RunEvent):
    """A run ended without metrics; the same command resumes it."""

    event: ClassVar[str] = "milepost.evaluation.failed"
    title: ClassVar[str] = "Evaluation failed"

    error: str
    """Class of the error; `GivenUp` where a watcher makes no further attempt."""
    series: str = ""
    """Of one that is given up, its attempts; else empty."""
    problem: str = ""
    """Digest of what is wrong with dataset or configuration; empty for any other error."""

    @property
    def cause(self) -> tuple[str, ...]:
        """The run, or what was to be evaluated where there is none yet; the error; the attempts that are over."""
        what = (self.run_id,) if self.run_id else (self.checkpoint, self.dataset)
        return (*what, self.error, *filter(None, (self.series, self.problem)))


class ConsistencyViolated(RunEvent):
    """Replicas that should agree do not."""

    event: ClassVar[str] = "milepost.consistency.violated"
    title: ClassVar[str] = "Replicas disagree"

    replicas: tuple[int, ...]
    """Replicas that differ from the others."""
    consequence: Literal["fail", "warn", "quarantine"]
    """What was done about it."""

    @property
    def cause(self) -> tuple[str, ...]:
        """The run and its suspects."""
        return (self.run_id, *map(str, self.replicas))


class RegressionDetected(RunEvent):
    """A metric is significantly worse than that of an earlier checkpoint, by more than a threshold."""

    event: ClassVar[str] = "milepost.regression.detected"
    title: ClassVar[str] = "Regression"

    metric: str
    """Name of the metric."""
    subset: str = "all"
    """`all`, else `key=value`."""
    value: float
    """Value of the metric at this checkpoint."""
    against: Literal["best", "previous"]
    """Which earlier checkpoint it is compared with."""
    against_run_id: str
    """The run of that checkpoint."""
    against_checkpoint: str
    """Checkpoint of the other run, as the user named it."""
    against_global_step: int | None
    """Training step of that checkpoint; None when unknown."""
    against_value: float
    """The metric's value there."""
    difference: float
    """Value now minus value there, over the items that both have."""
    ci_low: float | None
    """Lower end of the difference's 95% interval; None when undefined."""
    ci_high: float | None
    """Upper end of it."""
    p_value: float | None
    """Of no difference; None when undefined."""
    minimum_effect: float
    """Smallest drop that counts."""

    @property
    def cause(self) -> tuple[str, ...]:
        """The run, the metric and the run compared with."""
        return (self.run_id, self.metric, self.subset, self.against_run_id)


class GenerationDegenerate(RunEvent):
    """The model does not answer as a working model does."""

    event: ClassVar[str] = "milepost.generation.degenerate"
    title: ClassVar[str] = "Degenerate generation"

    share_stopped_by_length: float | None
    """Share of completions that were cut at the longest length; None when undefined."""
    share_without_answer: float | None
    """Share in which no answer was found."""
    share_repeating: float | None
    """Share that repeats itself without end."""
    signs: tuple[str, ...]
    """Which of the three are above their thresholds since then."""
    row: str
    """Name of the row of checkpoints that show them one after the other."""

    @property
    def cause(self) -> tuple[str, ...]:
        """The row: a model that loops from some step on is told of once."""
        return (self.row,)
