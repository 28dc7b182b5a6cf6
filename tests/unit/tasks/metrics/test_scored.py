"""No metric is made of what has no score, and the reasons are named with their numbers."""

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from schemas.errors import ScoringError
from schemas.tables import SAMPLES
from tasks.metrics.scored import check_scores
from tests.support.store_tables import filled

REFUSED = ("failed", None, "vllm refused a prompt of 9 tokens")
CRASHED = ("crashed", None, "my.f raised TypeError: f() missing 'solution'")
ODD = ("crashed", None, "my.f raised ValueError: cannot read '{}' at {}")
HUNG = ("timeout", None, "no verdict within 9 s")
RIGHT = ("correct", 1.0, None)
WRONG = ("wrong", 0.0, None)

Row = tuple[str, float | None, str | None]


def dataset(*rows: Row) -> pads.Dataset:
    samples = [
        {"item_id": f"i{number}", "verdict": verdict, "score": score, "error": error and error.format(number, number)}
        for number, (verdict, score, error) in enumerate(rows)
    ]
    table = filled(SAMPLES, samples) if samples else SAMPLES.empty_table()
    return pads.dataset(pa.table(table))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([REFUSED] * 3, ["none of the 3 samples has a score", "3 failed: vllm refused", "run the same command again"]),
        ([REFUSED] * 2 + [CRASHED] + [HUNG] * 4, ["2 failed: vllm", "1 crashed: my.f", "4 timeout: no", "regrade r1"]),
        ([CRASHED], ["none of the 1 samples", "1 crashed: my.f raised TypeError"]),
        ([RIGHT] + [CRASHED] * 4, ["grading crashed on 4 of 5 samples with one message", "missing 'solution'"]),
        ([RIGHT] * 6 + [ODD] * 4, ["grading crashed on 4 of 10", "cannot read '6' at 6", "milepost regrade r1"]),
        ([WRONG] * 94 + [CRASHED] * 6, ["grading crashed on 6 of 100"]),
    ],
)
def test_what_cannot_be_scored_fails_the_run_with_each_reason(rows: list[Row], words: list[str]) -> None:
    with pytest.raises(ScoringError) as failure:
        check_scores(dataset(*rows), run_id="r1")
    assert [word for word in words if word not in str(failure.value)] == []


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [WRONG],
        [RIGHT] + [CRASHED] * 3,
        [WRONG] * 95 + [CRASHED] * 5,
        [RIGHT] + [HUNG] * 9,
        [RIGHT] + [REFUSED] * 9,
    ],
)
def test_a_few_samples_without_a_score_are_counted(rows: list[Row]) -> None:
    check_scores(dataset(*rows), run_id="r1")
