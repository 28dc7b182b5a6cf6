"""Several tests at once: p-values that keep the chance of any false finding."""

from collections.abc import Sequence


def adjust_p_values(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted by Holm's step-down procedure; None stays None and does not count as a test.

    Rejecting where the adjusted value is at most a level keeps the chance of any false rejection at that level,
    whatever the dependence of the tests. Of m values in ascending order, the i-th (from 0) becomes the running maximum
    of min(1, (m - i) p). Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian
    Journal of Statistics 6 (1979).
    """
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        adjusted[index] = largest
    return adjusted
