"""check-regression: a run against the earlier checkpoints of its training.

Owns which of them it is compared with and the file of the result; the decision is `rule`'s.
"""

from collections.abc import Iterator
from typing import Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from infra.fileroot.earlier_runs import find_siblings, is_graded_alike, is_sampled_alike, read_report, select_earlier
from infra.fileroot.run_directory import run_at
from infra.files.atomic import write_text_atomically
from infra.store import Store, open_store
from schemas.config import EvaluationConfig
from schemas.regression import RegressionCheck, RegressionReport
from schemas.store import PublishedRun
from tasks.inference.runs.record import RunRecord
from tasks.metrics.comparison import compare
from tasks.regression.rule import COMPARISON, drop_p_value, is_regression, spend, split_level

_COLUMNS: Final = ("item_id", "prompt_hash", "gold", "dataset_version", "verdict", "score", "cluster_id")


def check_regression(config: EvaluationConfig, record: RunRecord) -> RegressionReport | None:
    """Return how the merged samples of a run compare with the previous and the best earlier checkpoint.

    Earlier are runs of the same experiment, trial and dataset version, of other weights and of a lower training step
    (where steps are unknown: published before), that sampled and graded with the same settings. None when there are
    none. The result is also written to regression.json.

    Raises:
        StoreError: a run cannot be read, or the result not written.
    """
    store = open_store(config.cluster.folder)
    siblings = find_siblings(store, record.identity, engine=record.plan.engine)
    earlier = select_earlier(siblings, record.identity)
    compared = dict(_select_compared(store, earlier, config, record))
    if not compared:
        return None
    settings = config.alerts.regression
    levels = dict(
        zip(("previous", "best"), split_level(spend(settings.alpha, len(siblings)), len(earlier)), strict=True)
    )
    samples = pq.read_table(record.run.samples_path, columns=list(_COLUMNS))
    found = [
        _compare(store, run, samples, against=against, level=levels[against], minimum_effect=settings.minimum_effect)
        for against, run in compared.items()
    ]
    own = record.plan.model_config_digest
    checks = [
        check.model_copy(update={"config_differs": compared[check.against].model_config_digest not in (own, None)})
        for check in found
        if check is not None
    ]
    report = RegressionReport(
        metric="mean score",
        minimum_effect=settings.minimum_effect,
        num_looks=len(siblings),
        checks=tuple(checks),
    )
    write_text_atomically(record.run.regression_path, report.model_dump_json(indent=1) + "\n")
    return report


def find_news(config: EvaluationConfig, report: RegressionReport) -> RegressionCheck | None:
    """Return the regression to tell of; None where there is none, or it was told of with an earlier run.

    A drop from the previous checkpoint is news. One from the best alone is only where the previous run, which comes
    between the two, had not regressed itself: else a training that stays down would alarm at every checkpoint.
    """
    found = {check.against: check for check in report.checks if check.is_regression}
    if "previous" in found or "best" not in found:
        return found.get("previous")
    previous = next(check for check in report.checks if check.against == "previous")
    run = run_at(config.cluster.folder, previous.run_id)
    before = read_report(run.regression_path, RegressionReport)
    return None if before is not None and before.has_regressed else found["best"]


def _select_compared(
    store: Store, earlier: list[PublishedRun], config: EvaluationConfig, record: RunRecord
) -> Iterator[tuple[Literal["previous", "best"], PublishedRun]]:
    """Yield the previous run, and the best where it is another."""

    def is_alike(run: PublishedRun) -> bool:
        return is_sampled_alike(store, run, record.plan) and is_graded_alike(store, run, config)

    previous = next((run for run in reversed(earlier) if is_alike(run)), None)
    if previous is None:
        return
    yield "previous", previous
    # of equally good ones the first
    scored = sorted((run for run in earlier if run.accuracy is not None), key=lambda run: -(run.accuracy or 0.0))
    best = next((run for run in scored if run == previous or is_alike(run)), previous)
    if best != previous:
        yield "best", best


def _compare(
    store: Store,
    run: PublishedRun,
    samples: pa.Table,
    *,
    against: Literal["previous", "best"],
    level: float,
    minimum_effect: float,
) -> RegressionCheck | None:
    """Return the comparison with one run; None where the two have no scored item in common."""
    baseline = store.table("samples", run_id=run.run_id).to_table(columns=list(_COLUMNS))
    comparison = compare(baseline, samples, config=COMPARISON)
    value, before, difference = comparison.candidate_mean, comparison.baseline_mean, comparison.difference
    if value is None or before is None or difference is None or not comparison.paired or comparison.num_items < 2:
        return None
    p_value = drop_p_value(comparison)
    return RegressionCheck(
        against=against,
        run_id=run.run_id,
        checkpoint=run.checkpoint,
        global_step=run.global_step,
        value=value,
        against_value=before,
        difference=difference,
        ci_low=comparison.ci_low,
        ci_high=comparison.ci_high,
        num_items=comparison.num_items,
        p_value=p_value,
        level=level,
        is_regression=is_regression(difference, p_value, level=level, minimum_effect=minimum_effect),
    )
