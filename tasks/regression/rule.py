"""When a drop is a regression: significant at this look's level, and large enough to count.

Owns the arithmetic; reads no run. A training is looked at again and again, and each look compares with a best
checkpoint that was chosen after the fact: at 5% for each look, 19 of 20 trainings of 20 equal checkpoints would raise
an alarm (docs/regression.md). So all looks together share one chance of a false alarm.
"""

from typing import Final

from schemas.comparison import CompareConfig, Comparison
from tasks.metrics.difference import Effect, student_p_value

COMPARISON: Final = CompareConfig()
"""How the two runs are compared."""
_EVEN_LOOKS: Final = 20
"""Looks over which the false alarms are spread about evenly; later looks get ever smaller shares, for there is no last
one. Most trainings keep some tens of checkpoints."""


def drop_p_value(comparison: Comparison) -> float:
    """Return the one-sided p-value of a drop in a comparison made with `COMPARISON`; 1 where there is none.

    That of the sign-flip test as far as its random patterns resolve it, and at least Student's, which is the larger of
    the two where many items differ. Beyond one pattern in ten thousand, where the levels of late looks are, Student's.
    """
    if comparison.difference is None or comparison.difference >= 0 or comparison.p_value is None:
        return 1.0
    num_clusters = comparison.num_clusters or comparison.num_items
    if comparison.stderr is None:
        return 0.5**num_clusters  # every one fell by the same: one pattern of signs out of so many
    effect = Effect(difference=comparison.difference, stderr=comparison.stderr, degrees_of_freedom=num_clusters - 1)
    student = (student_p_value(effect) or 0.0) / 2
    is_resolved = comparison.p_value > 1 / (COMPARISON.num_resamples + 1)
    return max(student, comparison.p_value / 2) if is_resolved else student


def spend(alpha: float, look: int) -> float:
    """Return the share of `alpha` that belongs to the look of that number, from 1; all looks together have `alpha`."""
    return alpha * (_EVEN_LOOKS + 1) / ((_EVEN_LOOKS + look) * (_EVEN_LOOKS + look + 1))


def split_level(level: float, num_earlier: int) -> tuple[float, float]:
    """Return the levels against the previous and against the best checkpoint, which share the level of a look.

    The previous one is chosen before anything is seen. The best is chosen among all earlier ones by the very numbers
    that are compared, so that it counts as a comparison with each of them (Bonferroni).
    """
    return level / 2, level / 2 / num_earlier


def is_regression(difference: float, p_value: float, *, level: float, minimum_effect: float) -> bool:
    """Whether a drop is significant, and at least `minimum_effect`."""
    return p_value <= level and difference <= -minimum_effect
