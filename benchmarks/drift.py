"""The data contract and drift of many rows: seconds and memory.

    python benchmarks/drift.py [--rows 100000]

Makes as many reference as current rows and runs the stage check-drift twice: the first time it freezes the reference,
the second time it compares. What is measured is the second, with the process that it starts: seconds from the call to
the result, CPU seconds (what to compare on a machine that others use too), and the peak memory of either process as
the kernel says. Exit code 1 when a limit is passed.
"""

import argparse
import itertools
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from schemas.config import EvaluationConfig
from schemas.dataset import ChatMessage, EvalItem
from schemas.training_position import TrainingPosition
from tasks.drift.profiles import name_rows, tabulate
from tasks.drift.stage import check_drift

LIMIT_S: Final = 10.0
LIMIT_MIB: Final = 1_024
_LETTERS: Final = "etaoinshrdlu"
_WORDS: Final = np.array(["".join(word) for word in itertools.product(_LETTERS, repeat=4)][:3_000])
_LEVELS: Final = ("1", "2", "3", "4", "5")


def make_items(num_rows: int, rng: np.random.Generator, *, start: int) -> list[EvalItem]:
    """Return problems of about 45 words and three numbers with whole-number answers and five levels."""
    lengths = np.maximum(3, rng.lognormal(np.log(45), 0.4, num_rows).astype(int))
    frequencies = 1 / np.arange(1, len(_WORDS) + 1)
    words = rng.choice(_WORDS, p=frequencies / frequencies.sum(), size=lengths.sum())
    return [
        EvalItem(
            item_id=f"i{start + row}",
            messages=(ChatMessage(role="user", content=f"{' '.join(prompt)} {row}, {row % 7} and {row % 101}?"),),
            gold=str(rng.integers(1, 10_000)),
            subsets={"level": _LEVELS[row % len(_LEVELS)]},
        )
        for row, prompt in enumerate(np.split(words, np.cumsum(lengths)[:-1]))
    ]


def peak_mib() -> tuple[float, float]:
    """Return the peak memory of this process and of the largest it has started."""
    own, started = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own / 1024, started / 1024


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> int:
    """Measure; exit 1 when a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    num_rows: int = parser.parse_args().rows
    rng = np.random.default_rng(0)
    reference, current = (name_rows(tabulate(make_items(num_rows, rng, start=start))) for start in (0, num_rows))
    with tempfile.TemporaryDirectory() as folder:
        config = EvaluationConfig.model_validate(
            {"cluster": {"fileroot": folder}, "actor": {"path": "none"}, "valid_dataset": {"path": "made.jsonl"}}
        )
        position = TrainingPosition()
        check_drift(config, reference, position=position, now=datetime.now(UTC))
        before, cpu_before = time.perf_counter(), cpu_seconds()
        check = check_drift(config, current, position=position, now=datetime.now(UTC))
        seconds, cpu = time.perf_counter() - before, cpu_seconds() - cpu_before
    own_mib, started_mib = peak_mib()
    print(f"{num_rows:,} rows against {num_rows:,}: {check.status}, alarmed: {check.alarmed}")
    print(f"{seconds:.1f} s, {cpu:.1f} CPU s, limit {LIMIT_S:.0f} s")
    print(
        f"peak {started_mib:.0f} MiB where rows are compared, {own_mib:.0f} MiB where they are made, limit {LIMIT_MIB}"
    )
    return int(seconds > LIMIT_S or max(own_mib, started_mib) > LIMIT_MIB)


if __name__ == "__main__":
    sys.exit(main())
