"""Canaries: the same items answered greedily by every replica, compared token by token with the majority.

Rounding makes two healthy replicas part ways where two tokens are about equally likely, and nowhere else. A difference
is excused if, up to and at the token where they part, the log-probabilities agree within the tolerance, and there
neither token is likelier than one of two; and only while few canaries part at all.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from schemas.consistency import ConsistencyCheck, WorkerName
from schemas.inference import CanaryRecord

CANARIES: Final = "canaries"
"""Name of the check."""
LOGPROB_TOLERANCES: Final = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
"""dtype to nats: above the largest difference seen between batch sizes (docs/consistency.md)."""
_MAX_PARTED_RATIO: Final = 0.75
"""Share of canaries that may part at a near tie: beyond it, it is not chance that so many do."""


class _Difference(NamedTuple):
    """How one answer differs from the reference."""

    at: int | None
    """First token that differs; None when all are equal."""
    logprob: float
    """Largest difference in log-probability up to there, nats; infinite where it cannot be a matter of rounding."""
    what: str
    """For people."""


def compare_canaries(
    answers: Mapping[WorkerName, Sequence[CanaryRecord]], *, tolerance: float
) -> ConsistencyCheck | None:
    """Return whether the answers agree; None when no canary was answered by two workers.

    Args:
        answers: by worker; those of a worker that died early are fewer.
        tolerance: largest difference in log-probability that is rounding, nats.
    """
    by_item: dict[str, dict[WorkerName, CanaryRecord]] = {}
    for worker, records in answers.items():
        for record in records:
            by_item.setdefault(record.item_id, {})[worker] = record
    shared = {item_id: records for item_id, records in by_item.items() if len(records) > 1}
    if not shared:
        return None
    found: dict[WorkerName, str] = {}
    num_parted: Counter[WorkerName] = Counter()
    worst = 0.0
    for item_id, records in shared.items():
        reference, is_majority = _reference(records)
        for worker, record in records.items():
            difference = _compare(record, records[reference])
            num_parted[worker] += difference.at is not None
            worst = max(worst, difference.logprob)
            if difference.logprob > tolerance:
                message = f"{worker} answers item {item_id!r} in another way than {reference}: {difference.what}"
                for suspect in (worker,) if is_majority else (worker, reference):
                    found.setdefault(suspect, message)
    for worker, count in num_parted.items():
        if count > max(1, _MAX_PARTED_RATIO * len(shared)):
            found.setdefault(worker, f"{worker} parts from the others in {count} of {len(shared)} canaries")
    return ConsistencyCheck(
        check=CANARIES,
        outcome="violated" if found else "passed",
        decides=True,
        suspects=tuple(sorted(found, key=lambda worker: (worker.attempt or 0, worker.replica))),
        statistic=worst if math.isfinite(worst) else None,
        threshold=tolerance,
        message=_describe(found, num_shared=len(shared), num_workers=len(answers), worst=worst),
    )


def _describe(found: Mapping[WorkerName, str], *, num_shared: int, num_workers: int, worst: float) -> str:
    if not found:
        return (
            f"{num_workers} replicas answer {num_shared} canaries alike; their log-probabilities differ by "
            f"{worst:.2g} nats at most"
        )
    messages = list(dict.fromkeys(found.values()))
    more = f"; and {len(messages) - 1} more" if len(messages) > 1 else ""
    return f"canaries: {messages[0]}{more}"


def _reference(records: Mapping[WorkerName, CanaryRecord]) -> tuple[WorkerName, bool]:
    """Return the worker whose answer most others share, and whether more share it than any other answer."""
    answers = {worker: (record.prompt_hash, record.token_ids, record.text) for worker, record in records.items()}
    ranked = Counter(answers.values()).most_common(2)
    is_majority = len(ranked) == 1 or ranked[0][1] > ranked[1][1]
    return next(worker for worker, answer in answers.items() if answer == ranked[0][0]), is_majority


def _compare(record: CanaryRecord, reference: CanaryRecord) -> _Difference:
    if record.error is not None or reference.error is not None:
        is_same = record.error == reference.error
        what = f"it was refused: {record.error or reference.error}"
        return _Difference(None if is_same else 0, 0.0 if is_same else math.inf, what)
    if record.prompt_hash != reference.prompt_hash:
        return _Difference(0, math.inf, "its prompt is another one; compare tokenizers and chat templates")
    mine, theirs = record.token_ids, reference.token_ids
    at = next((index for index, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1]), None)
    if at is None and len(mine) != len(theirs):
        return _Difference(min(len(mine), len(theirs)), math.inf, f"{len(mine)} tokens instead of {len(theirs)}")
    if at is None and record.text != reference.text:
        return _Difference(0, math.inf, f"the same tokens read {record.text[:40]!r}, not {reference.text[:40]!r}")
    if record.logprobs is None or reference.logprobs is None:
        return _Difference(at, 0.0 if at is None else math.inf, f"token {at} differs")
    end = len(mine) if at is None else at + 1
    pairs = list(zip(record.logprobs[:end], reference.logprobs[:end], strict=True))
    logprob = max((_gap(ours, other) for ours, other in pairs), default=0.0)
    if at is None:
        return _Difference(None, logprob, f"the log-probability of a token differs by {logprob:.3g} nats")
    # two tokens can be about equally likely only if neither has more than half
    known = [value for value in pairs[-1] if value is not None]
    excess = max(0.0, max(known) - math.log(0.5)) if known else math.inf
    first, second = ("none" if value is None else f"{value:.3g}" for value in pairs[-1])
    what = f"token {at} is {mine[at]} instead of {theirs[at]}, log-probabilities {first} and {second}"
    return _Difference(at, max(logprob, excess), what)


def _gap(ours: float | None, other: float | None) -> float:
    """Return how far two log-probabilities are apart; infinitely where one of them alone is no number."""
    if ours is None or other is None:
        return 0.0 if ours is other else math.inf
    return abs(ours - other)
