"""Whether so many samples have a score that a metric says something: no failure becomes a metric of the rest.

The rule (docs/resuming.md): no run without a scored sample, and none where more than a few samples, and more than one
in twenty, crashed the grader with one message: then it is the grader that is wrong.
"""

import re
from collections import Counter
from typing import Final

import pyarrow.compute as pc
import pyarrow.dataset as pads

from schemas.errors import ScoringError
from schemas.states import Verdict

_FEW: Final = 3
"""Crashed samples with one message that a run may have, however small it is."""
_MAX_CRASHED_RATIO: Final = 0.05
"""Share of the samples that may: one in twenty is beyond what odd completions do to a grader that works."""
_MAX_SHOWN: Final = 5
_VARIABLE: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
"""What differs between two messages of one cause: quoted text and numbers."""


def check_scores(samples: pads.Dataset, *, run_id: str) -> None:
    """Return if metrics can be made of `samples` (SAMPLES).

    Raises:
        ScoringError: they cannot, with each reason and the number of samples that have it.
    """
    num_samples = samples.count_rows()
    if not num_samples:
        return
    columns = samples.to_table(columns=["verdict", "error"], filter=pc.field("score").is_null()).to_pylist()
    unscored = [(row["verdict"], (row["error"] or "no reason given").partition("\n")[0]) for row in columns]
    crashed = _group([reason for verdict, reason in unscored if verdict == Verdict.CRASHED])
    for reason, count in crashed:
        if len(unscored) < num_samples and count > max(_FEW, _MAX_CRASHED_RATIO * num_samples):
            raise ScoringError(
                f"grading crashed on {count} of {num_samples} samples with one message, so no metric is published: "
                f"{reason}. {_advise(run_id)}"
            )
    if len(unscored) == num_samples:
        verdicts = [verdict for verdict in Verdict if any(verdict == found for found, _ in unscored)]
        groups = [
            f"{count} {verdict}: {reason}"
            for verdict in verdicts
            for reason, count in _group([reason for found, reason in unscored if found == verdict])
        ]
        more = f"\n  - and {len(groups) - _MAX_SHOWN} other reasons" if len(groups) > _MAX_SHOWN else ""
        listed = "".join(f"\n  - {group}" for group in groups[:_MAX_SHOWN])
        raise ScoringError(
            f"none of the {num_samples} samples has a score, so no metric is published:{listed}{more}\n"
            f"{_advise(run_id) if crashed else 'Mend the cause, and run the same command again'}"
        )


def _group(reasons: list[str]) -> list[tuple[str, int]]:
    """Return one reason of each cause with the number of its samples, the most frequent first."""
    causes = Counter(_VARIABLE.sub("…", reason) for reason in reasons)
    first = {_VARIABLE.sub("…", reason): reason for reason in reversed(reasons)}
    return [(first[cause], count) for cause, count in causes.most_common()]


def _advise(run_id: str) -> str:
    return f"Mend it; `milepost regrade {run_id}` then grades the samples again, without generating"
