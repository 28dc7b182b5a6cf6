"""Which gold answers can be graded at all: asked when a dataset is loaded, before anything is generated."""

from collections.abc import Sequence
from typing import Final

from tasks.grading.exact import GoldKind, classify_gold
from tasks.grading.extraction import find_gold
from tasks.grading.jobs import Job
from tasks.grading.limits import why_too_hard
from tasks.grading.pool import GradingPool

_MISSING: Final = frozenset({"", "none", "null", "nan", "n/a", "na", "nil", "-", "?"})
"""What exporters write where there is no answer."""


def _check_form(gold: str) -> tuple[str | None, Job | None]:
    """Return what is wrong with a gold, or the job that only a parser can do; neither when all is well."""
    if gold.strip().casefold() in _MISSING:
        return f"{gold!r} is no answer", None
    answer = find_gold(gold)
    reason = why_too_hard(answer)
    if reason is not None:
        return reason, None
    kind = classify_gold(answer)
    return (None, Job("parse", "", answer)) if kind is GoldKind.SYMBOLIC else (None, None)


def check_golds(golds: Sequence[str]) -> list[str | None]:
    """Return for each gold None when it can be graded, else the reason why not.

    Numbers, words and choice letters are decided at once (microseconds); mathematics is parsed in grading processes,
    each distinct gold once.
    """
    forms = {gold: _check_form(gold) for gold in dict.fromkeys(golds)}
    to_parse = [(gold, job) for gold, (_, job) in forms.items() if job is not None]
    reasons: dict[str, str | None] = {gold: reason for gold, (reason, _) in forms.items()}
    if to_parse:
        with GradingPool() as running:
            replies = running.run([job for _, job in to_parse])
        for (gold, _), reply in zip(to_parse, replies, strict=True):
            if reply.outcome != "correct":
                cause = f": {reply.reason}" if reply.reason else ""
                reasons[gold] = f"{gold[:100]!r} cannot be read as a number, words or mathematics{cause}"
    return [reasons[gold] for gold in golds]
