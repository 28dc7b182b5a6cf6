"""Refreshing a validation set: how long does it take with a large pool and a large training set?

    python benchmarks/refresh.py [--pool 100000] [--training 100000] [--size 1000]

Makes word problems in the shape of GSM8K, with copies, near copies and training rows planted among them, draws a
version through the stage that `milepost refresh` runs, and checks that what was planted was found. Exit code 1 when it
takes more than 30 CPU seconds (one thread: the time on a machine that does nothing else), or when too little was found.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from schemas.config import EvaluationConfig
from schemas.training_position import TrainingPosition
from tasks.refresh.stage import refresh_validation_set

LIMIT_S: Final = 30.0
PLANTED_SHARE: Final = 0.005
"""Share of the pool that is planted of each kind."""
FOUND_SHARE: Final = 0.98
_VOCABULARY: Final = 20_000
_TOPICS: Final = ("sum", "product", "rate", "age", "money", "area", "time")


def make_questions(count: int, rng: np.random.Generator) -> Iterator[str]:
    """Yield questions of 25 to 80 words, whose frequencies fall as in a language."""
    frequency = 1 / np.arange(1, _VOCABULARY + 1) ** 0.8
    for _ in range(0, count, 1_000):
        lengths = rng.integers(25, 80, 1_000)
        words = rng.choice(_VOCABULARY, p=frequency / frequency.sum(), size=lengths.sum())
        for part in np.split(words, np.cumsum(lengths)[:-1]):
            yield " ".join(f"w{word}" for word in part) + "?"


def write_rows(path: Path, questions: list[str]) -> None:
    """Write questions with golds, worked solutions and topics as JSON Lines."""
    with path.open("w") as file:
        for number, question in enumerate(questions):
            row = {
                "question": question,
                "answer": f"So it is {number}.",
                "gold": number,
                "topic": number % len(_TOPICS),
            }
            file.write(json.dumps(row) + "\n")


def change_end(question: str, rng: np.random.Generator) -> str:
    """Return the question with another last word: a similarity above 0.9 for every length."""
    return f"{question.rpartition(' ')[0]} changed{rng.integers(10**9)}?"


def make_data(folder: Path, num_pool: int, num_training: int, size: int) -> EvaluationConfig:
    """Write source, pool and training data, and return the configuration that refreshes one from the others."""
    rng = np.random.default_rng(0)
    questions = list(make_questions(size + num_pool + num_training, rng))
    source, pool = questions[:size], questions[size : size + num_pool]
    training = questions[size + num_pool : size + num_pool + num_training]
    planted = int(PLANTED_SHARE * num_pool)
    # the pool's end holds copies and near copies of its start; training holds later ones, as they are and nearly
    pool[-planted:] = pool[:planted]
    pool[-2 * planted : -planted] = [change_end(one, rng) for one in pool[planted : 2 * planted]]
    training[:planted] = pool[2 * planted : 3 * planted]
    training[-planted:] = [change_end(one, rng) for one in pool[3 * planted : 4 * planted]]
    for name, rows in (("source", source), ("pool", pool), ("training", training)):
        write_rows(folder / f"{name}.jsonl", rows)
    columns = {"prompt": "question", "gold": "gold", "subsets": ["topic"]}
    return EvaluationConfig.model_validate(
        {
            "actor": {"path": "none"},
            "cluster": {"fileroot": str(folder / "out")},
            "valid_dataset": {"path": str(folder / "source.jsonl"), "columns": columns},
            "refresh": {"pool": [str(folder / "pool.jsonl")], "training_data": [str(folder / "training.jsonl")]},
        }
    )


def main() -> int:
    """Measure one refresh; exit 1 when it is too slow or misses what was planted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", type=int, default=100_000)
    parser.add_argument("--training", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        config = make_data(Path(name), options.pool, options.training, options.size)
        before, cpu_before = time.perf_counter(), time.process_time()
        outcome = refresh_validation_set(config, reason="benchmark", position=TrainingPosition(), now=datetime.now(UTC))
        seconds, cpu_seconds = time.perf_counter() - before, time.process_time() - cpu_before
    draw = outcome.manifest.draw
    if draw is None:
        return 1
    planted = int(PLANTED_SHARE * options.pool)
    found = {
        "exact duplicates": draw.num_exact_duplicates,
        "near duplicates": draw.num_near_duplicates,
        "seen in training": draw.contamination.num_exact,
        "nearly seen in training": draw.contamination.num_ngram + draw.contamination.num_minhash,
    }
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"refresh {options.size:,} of {options.pool:,} against {options.training:,} training rows: {seconds:.1f} s, "
        f"{cpu_seconds:.1f} CPU s, peak {peak_mib:.0f} MiB, limit {LIMIT_S:.0f} CPU s"
    )
    for kind, count in found.items():
        print(f"{kind:24} {count:6,} of {planted:,} planted")
    return int(cpu_seconds > LIMIT_S or min(found.values()) < FOUND_SHARE * planted)


if __name__ == "__main__":
    sys.exit(main())
