"""When a check of drift is due: at every evaluation, or every so many epochs, steps or hours."""

from datetime import datetime, timedelta

from schemas.drift import DriftCheck, DriftConfig
from schemas.training_position import TrainingPosition


def is_due(config: DriftConfig, last: DriftCheck, *, position: TrainingPosition, now: datetime) -> bool:
    """Whether to compare again rather than to show the last result.

    Args:
        config: The section `drift`. Of several frequencies the first to fall due counts.
        last: The last result.
        position: Of the checkpoint to evaluate. Where either side does not know its position, or training went back to
            an earlier one, a check is due: it costs seconds, a missed drift a wrong conclusion.
        now: With its time zone.
    """
    intervals = (config.freq_epochs, config.freq_steps, config.freq_hours)
    if intervals == (None, None, None):
        return True
    passed = (
        (config.freq_epochs, last.position.epoch, position.epoch),
        (config.freq_steps, last.position.global_step, position.global_step),
    )
    for frequency, before, here in passed:
        if frequency is not None and (before is None or here is None or not 0 <= here - before < frequency):
            return True
    if config.freq_hours is None:
        return False
    return not timedelta(0) <= now - last.checked_at < timedelta(hours=config.freq_hours)
