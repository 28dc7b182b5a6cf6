"""Grading against serial math-verify, in one run: `MILEPOST_TEST_DATA=... python benchmarks/grading.py`.

The peer is math-verify as its documentation shows it, one pair after another in one process, its default settings and
time limits, golds wrapped in dollar signs so that they parse at all. Both sides get the same texts. Times of the peer
exclude its import; ours are given with the start of the grading processes and without.
"""

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from schemas.states import Verdict
from tasks.grading.grader import Grader, GradeRequest

SOLVERS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


class Pairs(NamedTuple):
    """One workload."""

    name: str
    completions: list[str]
    golds: list[str]
    truth: list[bool] | None
    """The published or constructed verdicts; None where there are none."""
    target: float
    """Ratio that must be reached, the start of the processes apart."""


def main() -> int:
    """Print one line per workload; exit 1 when a ratio or a verdict falls short."""
    root = os.environ.get("MILEPOST_TEST_DATA")
    if not root:
        print("set MILEPOST_TEST_DATA to the folder with gsm8k_model_outputs and math500", file=sys.stderr)
        return 2
    from math_verify import parse, verify

    def peer(completion: str, gold: str) -> bool:
        return verify(parse(f"${gold}$"), parse(completion))

    peer(r"\boxed{\frac{1}{2}}", "0.5")  # its parser builds tables on first use
    is_met = True
    for pairs in load(Path(root)):
        is_met &= compare(pairs, peer)
    return 0 if is_met else 1


def load(root: Path) -> list[Pairs]:
    """Read the three workloads."""
    solutions = [
        (row[solver]["solution"], row["ground_truth"].rpartition("A:")[2].strip(), row[solver]["is_correct"])
        for row in read_rows(root / "gsm8k_model_outputs" / "example_model_solutions.jsonl")
        for solver in SOLVERS
    ]
    golds = [str(row["answer"]) for row in read_rows(root / "math500" / "test.jsonl")]
    others = golds.copy()
    random.Random(0).shuffle(others)
    boxed = [f"The answer is $\\boxed{{{gold}}}$." for gold in golds]
    return [
        Pairs("2,400 GSM8K solutions", *map(list, zip(*solutions, strict=True)), 10.0),  # type: ignore[arg-type]
        Pairs("MATH-500 golds, themselves", boxed, golds, [True] * len(golds), 3.0),
        Pairs("MATH-500 golds, shuffled", boxed, others, None, 1.5),
    ]


def read_rows(path: Path) -> list[Any]:
    """Read JSON lines, split on LF only."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def compare(pairs: Pairs, peer: Callable[[str, str], bool]) -> bool:
    """Time both on one workload and print the ratio and every kind of difference in verdicts."""
    start = time.perf_counter()
    theirs = [peer(completion, gold) for completion, gold in zip(pairs.completions, pairs.golds, strict=True)]
    peer_s = time.perf_counter() - start
    requests = [GradeRequest(completion=c, gold=g) for c, g in zip(pairs.completions, pairs.golds, strict=True)]
    with Grader() as grader:
        start = time.perf_counter()
        grades = grader.grade(requests)
        with_start_s = time.perf_counter() - start
    with Grader() as grader:
        grader.pool.start()
        grader.grade([GradeRequest(completion=r"\boxed{\sqrt{8}}", gold=r"2\sqrt{2}")])
        start = time.perf_counter()
        grader.grade(requests)
        started_s = time.perf_counter() - start
    ours = [grade.verdict is Verdict.CORRECT for grade in grades]
    print(
        f"{pairs.name}: math-verify {peer_s:.2f} s; ours {started_s:.3f} s ({peer_s / started_s:.1f} x), "
        f"with the start of the processes {with_start_s:.2f} s ({peer_s / with_start_s:.1f} x); target {pairs.target} x"
    )
    differences = [
        (completion[-60:], gold, grade.verdict.value)
        for completion, gold, grade, their in zip(pairs.completions, pairs.golds, grades, theirs, strict=True)
        if (grade.verdict is Verdict.CORRECT) != their
    ]
    print(f"    verdicts {dict(Counter(grade.verdict.value for grade in grades))}; {len(differences)} differ")
    for completion, gold, verdict in differences[:8]:
        print(f"      ours {verdict}: {completion!r} against {gold!r}")
    is_no_worse = True
    if pairs.truth is not None:
        our_errors = sum(mine != true for mine, true in zip(ours, pairs.truth, strict=True))
        their_errors = sum(their != true for their, true in zip(theirs, pairs.truth, strict=True))
        print(f"    against the known verdicts: ours {our_errors} wrong, math-verify {their_errors} wrong")
        is_no_worse = our_errors <= their_errors
    return is_no_worse and peer_s / started_s >= pairs.target


if __name__ == "__main__":
    sys.exit(main())
