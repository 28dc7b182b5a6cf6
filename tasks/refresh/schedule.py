"""When a refresh is due by itself: drift was found, or enough time or training has passed since the last version."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from schemas.refresh import RefreshConfig, VersionManifest
from schemas.training_position import TrainingPosition


def find_reason(
    config: RefreshConfig,
    current: VersionManifest | None,
    *,
    drifted: Sequence[str],
    position: TrainingPosition,
    now: datetime,
) -> str | None:
    """Return why a new version is due, None when none is.

    Args:
        config: The section `refresh`.
        current: The version in use; a schedule counts from when it was made, and never calls for the first one.
        drifted: Names of the features that drifted.
        position: Of the checkpoint to evaluate. A frequency in steps or epochs is left alone where either side does not
            know its position.
        now: With its time zone.
    """
    if drifted and config.is_drift_driven:
        return f"drift of {', '.join(drifted)}"
    if current is None or not config.is_scheduled:
        return None
    passed = {
        ("step", config.freq_steps): (current.origin.position.global_step, position.global_step),
        ("epoch", config.freq_epochs): (current.origin.position.epoch, position.epoch),
    }
    for (unit, frequency), (last, here) in passed.items():
        if frequency is not None and last is not None and here is not None and here - last >= frequency:
            return f"schedule: {unit} {here}, {here - last} {unit}s after the last version"
    if config.freq_hours is not None and now - current.origin.created_at >= timedelta(hours=config.freq_hours):
        hours = (now - current.origin.created_at) / timedelta(hours=1)
        return f"schedule: {hours:.1f} hours after the last version"
    return None
