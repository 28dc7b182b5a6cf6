"""Is the training getting better: the latest run of each line against its first, its best and the one before."""

import logging
from dataclasses import dataclass
from typing import Final, Literal

from infra.store import Store
from schemas.comparison import Comparison
from schemas.errors import DatasetError, StoreError
from schemas.store import PublishedRun
from tasks.metrics.multiple_tests import adjust_p_values
from tasks.metrics.published import compare_runs
from tasks.report.series import Overview, Series

Against = Literal["first", "best", "previous"]
Verdict = Literal["better", "worse", "no clear change", "cannot tell"]

_LEVEL: Final = 0.05
"""Chance of calling any of the changes shown real when none is."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How the latest run of a line differs from an earlier one of it."""

    series: Series
    """The line."""
    against: Against
    """Which earlier run: the first, the one with the highest accuracy so far, or the one before."""
    baseline: PublishedRun
    """That run."""
    comparison: Comparison | None
    """Difference of the mean score, paired by problem; None where the two cannot be compared."""
    p_value: float | None
    """p-value adjusted for all changes shown (Holm); None where there is none."""
    reason: str = ""
    """Why they cannot be compared."""

    @property
    def verdict(self) -> Verdict:
        """What the difference amounts to at a level of 5% over all changes shown."""
        if self.comparison is None or self.comparison.difference is None or self.p_value is None:
            return "cannot tell"
        if self.p_value > _LEVEL:
            return "no clear change"
        return "better" if self.comparison.difference > 0 else "worse"


def find_changes(store: Store, overview: Overview) -> tuple[Change, ...]:
    """Return the changes of every line with more than one run; reads the scores of the runs compared.

    Raises:
        StoreError: the store cannot be read.
    """
    pairs = [(series, baseline) for series in overview.series for baseline in _baselines(series)]
    compared = [_compare(store, run.run_id, series.latest.run_id) for series, (run, _) in pairs]
    p_values = adjust_p_values([None if isinstance(found, str) else found.p_value for found in compared])
    return tuple(
        Change(
            series=series,
            against=against,
            baseline=run,
            comparison=None if isinstance(found, str) else found,
            p_value=p_value,
            reason=found if isinstance(found, str) else "",
        )
        for (series, (run, against)), found, p_value in zip(pairs, compared, p_values, strict=True)
    )


def _baselines(series: Series) -> list[tuple[PublishedRun, Against]]:
    earlier = [run for run in series.runs[:-1] if run.weight_digest != series.latest.weight_digest]
    if not earlier:
        return []
    measured = [run for run in earlier if run.accuracy is not None]
    best = max(measured, key=lambda run: run.accuracy or 0.0, default=None)
    found: dict[str, tuple[PublishedRun, Against]] = {earlier[-1].run_id: (earlier[-1], "previous")}
    if best is not None:
        found.setdefault(best.run_id, (best, "best"))
    found.setdefault(earlier[0].run_id, (earlier[0], "first"))
    return list(found.values())


def _compare(store: Store, baseline: str, candidate: str) -> Comparison | str:
    try:
        return compare_runs(store, baseline, candidate)
    except (DatasetError, StoreError) as exc:
        logger.info("run %s is not compared with run %s: %s", candidate, baseline, exc)
        return str(exc)
