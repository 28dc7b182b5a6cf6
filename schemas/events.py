"""The events that Milepost emits: typed payloads, one model per event.

Whoever listens (an automation of Prefect's, say) gets `model_dump` as the payload, the name as the event, and
`milepost.<kind>.<id>` as the resource.
"""

from typing import ClassVar, Literal

from schemas.base import Model


class Event(Model):
    """The base of every event."""

    event: ClassVar[str]
    """Name of the event."""

    checkpoint: str
    """The checkpoint under evaluation, as the user named it."""
    global_step: int | None
    """Its training step; None when unknown."""
    dataset: str
    """Name of the dataset."""
    message: str
    """What happened, how much, against what: for people."""


class DriftDetected(Event):
    """What is asked now differs from the reference, or breaks the data contract."""

    event: ClassVar[str] = "milepost.drift.detected"

    reference_version: str
    """Version of the rows compared with."""
    current_version: str
    """Version of the rows compared."""
    features: tuple[str, ...]
    """Features that drifted."""
    broken_rules: tuple[str, ...]
    """Rules of the data contract that do not hold."""


class ConsistencyViolated(Event):
    """Replicas that should agree do not."""

    event: ClassVar[str] = "milepost.consistency.violated"

    run_id: str
    """The run."""
    replicas: tuple[int, ...]
    """Those that differ from the others."""
    consequence: Literal["fail", "warn", "quarantine"]
    """What was done about it."""
