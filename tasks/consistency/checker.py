"""Whether replicas that shared one evaluation agree: what they were given first, then what they made.

The deciding rule is the largest standardised residual with a Bonferroni bound, confirmed by permutation (residuals.py).
The plain rule, any accuracy more than `consistency.tolerance` from the mean, is always computed and shown.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from schemas.consistency import ConsistencyCheck, ConsistencyConfig, ConsistencyReport, ReplicaReport
from tasks.consistency.canaries import CANARIES
from tasks.consistency.measures import ReplicaSamples, read_samples
from tasks.consistency.shards import (
    PLAIN_RULE,
    MeasureComparison,
    compare_measures,
    compare_prompts,
    plain_rule,
)

_DEFAULTS: Final = ConsistencyConfig()


def check_consistency(
    samples: pa.Table,
    *,
    config: ConsistencyConfig = _DEFAULTS,
    planned_prompts: Mapping[str, str] | None = None,
    earlier: Sequence[ConsistencyCheck] = (),
) -> ConsistencyReport:
    """Return whether the replicas that made `samples` agree.

    Args:
        samples: columns of SAMPLES, all or some; an absent column is unknown.
        config: how to decide.
        planned_prompts: prompt hash by item id, where a plan is known.
        earlier: comparisons made before (facts, canaries); they decide too.

    Raises:
        DistributedEvaluationError: a verdict of the samples does not exist.
    """
    read = read_samples(samples)
    if read is None:
        return _report((), earlier, set(), "no sample names the replica that made it (column replica)")
    compared = compare_measures(read, config)
    checks = [*earlier, *compare_prompts(read, planned_prompts), *(each.check for each in compared)]
    accuracy = next((each for each in compared if each.measure == "accuracy"), None)
    if accuracy is not None:
        checks.append(plain_rule(read, accuracy.means, config))
    enough = {CANARIES, PLAIN_RULE if config.rule == "absolute" else compared[0].measure if compared else ""}
    return _report(_replicas(read, compared, checks), checks, enough, _why_not(read, compared, config))


def _report(
    replicas: tuple[ReplicaReport, ...], checks: Sequence[ConsistencyCheck], enough: set[str], why_not: str
) -> ConsistencyReport:
    """Return the verdict: `agree` needs a check among `enough` that could have shown otherwise."""
    violations = [check for check in checks if check.decides and check.outcome == "violated"]
    detectable = next((check.detectable for check in checks if check.check == "accuracy"), None)
    told = "" if detectable is None else f"; {_sensitivity(detectable)}"
    passed = {check.check for check in checks if check.outcome == "passed"}
    if violations:
        verdict, message = "disagree", "; ".join(check.message for check in violations)
    elif passed & enough:
        verdict, message = "agree", f"{len(replicas)} replicas agree{_exceptions(checks)}{told}"
    else:
        verdict, message = "cannot_tell", f"nothing can be said of the replicas: {why_not}{told}"
    return ConsistencyReport(
        verdict=verdict, message=message, replicas=replicas, checks=tuple(checks), detectable=detectable
    )


def _exceptions(checks: Sequence[ConsistencyCheck]) -> str:
    """Return the checks without an outcome, so that the sentence does not contradict the rows below it."""
    unknown = [check.check for check in checks if check.outcome == "cannot_tell"]
    return f"; nothing can be said of {', '.join(unknown)}" if unknown else ""


def _sensitivity(detectable: float) -> str:
    if detectable > 1:
        return "not even a replica that gets everything wrong would have been seen"
    return f"a replica whose accuracy is off by {detectable:.2g} would have been seen"


def _why_not(read: ReplicaSamples, compared: Sequence[MeasureComparison], config: ConsistencyConfig) -> str:
    if len(read.workers) < 2:
        return f"one replica made all samples ({', '.join(map(str, read.workers))})"
    if config.rule == "absolute":
        return "consistency.rule absolute needs the accuracy, and no sample has a verdict or score"
    if not compared:
        return "no sample has a verdict, score, answer, length or log-probability"
    return (
        f"too few samples for each (consistency.max_undetected is {config.max_undetected:g}); use fewer replicas, or "
        "consistency.canaries"
    )


def _replicas(
    read: ReplicaSamples, compared: Sequence[MeasureComparison], checks: Sequence[ConsistencyCheck]
) -> tuple[ReplicaReport, ...]:
    num_samples = np.bincount(read.worker, minlength=len(read.workers))
    reports: list[ReplicaReport] = []
    for index, worker in enumerate(read.workers):
        means = {each.measure: _known(each.means[index]) for each in compared}
        reports.append(
            ReplicaReport(
                number=worker.replica,
                attempt=worker.attempt,
                num_samples=int(num_samples[index]),
                num_items=len(np.unique(read.item[read.worker == index])),
                accuracy=means.get("accuracy"),
                mean_length=means.get("length"),
                no_answer_rate=means.get("no_answer_rate"),
                mean_logprob=means.get("mean_logprob"),
                residuals={
                    each.measure: float(each.residuals[index])
                    for each in compared
                    if not np.isnan(each.residuals[index])
                },
                problems=tuple(
                    check.message
                    for check in checks
                    if check.decides and check.outcome == "violated" and worker in check.suspects
                ),
            )
        )
    return tuple(reports)


def _known(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)
