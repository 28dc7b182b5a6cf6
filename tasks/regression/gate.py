"""The gate of two published runs: whether one is worse than the other."""

from infra.store import Store
from schemas.alerts import RegressionConfig
from schemas.errors import DatasetError
from schemas.regression import GateResult
from tasks.metrics.published import compare_runs
from tasks.regression.rule import COMPARISON, drop_p_value, is_regression


def judge(store: Store, run_id: str, against: str, *, minimum_effect: float | None = None) -> GateResult:
    """Return whether run `run_id` has regressed against run `against`: one look, which has the whole level.

    `minimum_effect`: smallest drop of the mean score that counts, in [0, 1]; None for that of the configuration.

    Raises:
        StoreError: one of the runs is not in the store.
        DatasetError: the runs have fewer than two scored items in common, or, on two versions of a dataset, fewer than
            20, so that nothing can be said.
    """
    settings = RegressionConfig()
    if minimum_effect is not None:
        settings = settings.model_copy(update={"minimum_effect": minimum_effect})
    comparison = compare_runs(store, against, run_id, config=COMPARISON)
    difference = comparison.difference
    if difference is None or not comparison.paired or comparison.num_items < 2:
        raise DatasetError(
            f"runs {run_id} and {against} have {comparison.num_items if comparison.paired else 0} scored problems in "
            "common; a gate needs 2 and more: name a run on the same dataset (`milepost runs`)"
        )
    p_value = drop_p_value(comparison)
    return GateResult(
        run_id=run_id,
        against=against,
        comparison=comparison,
        p_value=p_value,
        level=settings.alpha,
        minimum_effect=settings.minimum_effect,
        has_regressed=is_regression(difference, p_value, level=settings.alpha, minimum_effect=settings.minimum_effect),
    )
