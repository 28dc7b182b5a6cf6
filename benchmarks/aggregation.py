"""Publishing and aggregating many samples: is time linear, is memory bounded?

    python benchmarks/aggregation.py [--sizes 100000 1000000] [--n-samples 4]

Makes samples in random order, publishes them from that file into a store (which sorts them), and aggregates the stored
table. Each step runs in a process of its own, whose peak memory is what the kernel says. Prints one line per step and
the ratio of the times of the largest size to the smallest, beside the ratio of the sizes. CPU seconds (of all threads)
are what to compare on a machine that others use too.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from infra.store import open_store
from schemas.tables import METRICS, RUNS, SAMPLES, conform
from tasks.metrics.aggregation import aggregate

STEPS: Final = ("publish", "aggregate")
MEMORY_LIMIT_MIB: Final = 1536
_BATCH_ROWS: Final = 20_000
_IDENTITY: Final = {
    "run_id": "bench",
    "experiment_name": "bench",
    "trial_name": "trial0",
    "checkpoint": "none",
    "weight_digest": "0" * 32,
    "dataset": "made",
    "dataset_version": "0" * 32,
}


def make_samples(num_rows: int, n_samples: int, rng: np.random.Generator) -> Iterator[pa.Table]:
    """Yield samples in random order: 7 subjects, prompts of 300 and completions of about 600 characters."""
    order = rng.permutation(num_rows)
    for start in range(0, num_rows, _BATCH_ROWS):
        slots = order[start : start + _BATCH_ROWS]
        items, count = slots // n_samples, len(slots)
        correct = rng.random(count) < (items % 100) / 100
        lengths = rng.integers(50, 200, count)
        columns: dict[str, Any] = {
            **{name: pa.array([value] * count) for name, value in _IDENTITY.items()},
            "item_id": pa.array([f"item-{item:09}" for item in items]),
            "repeat": pa.array(slots % n_samples, pa.int32()),
            "subsets": pa.array([[("subject", f"s{item % 7}")] for item in items], SAMPLES.field("subsets").type),
            "prompt_hash": pa.array([f"{item:032x}" for item in items]),
            "prompt": pa.array([f"Problem {item}. " + "What is it? " * 24 for item in items]),
            "completion": pa.array([f"{slot} so " * int(size) for slot, size in zip(slots, lengths // 3, strict=True)]),
            "finish_reason": pa.array(np.where(lengths > 190, "length", "stop")),
            "num_prompt_tokens": pa.array(np.full(count, 80), pa.int32()),
            "num_completion_tokens": pa.array(lengths, pa.int32()),
            "gold": pa.array([str(item) for item in items]),
            "answer": pa.array(
                [str(item if ok else slot % 5) for item, ok, slot in zip(items, correct, slots, strict=True)]
            ),
            "verdict": pa.array(np.where(correct, "correct", "wrong")),
            "score": pa.array(correct.astype(np.float64)),
            "seed": pa.array(slots, pa.int64()),
        }
        yield conform(pa.table(columns), SAMPLES)


def run_row(num_rows: int) -> pa.Table:
    """The row of `runs` that a publication needs."""
    values: dict[str, Any] = {**_IDENTITY, "num_planned": num_rows, "started_at": datetime.now(UTC)}
    for field in RUNS:
        if field.name not in values and not field.nullable:
            filler = (
                datetime.now(UTC) if pa.types.is_timestamp(field.type) else [] if pa.types.is_nested(field.type) else 0
            )
            values[field.name] = "" if pa.types.is_string(field.type) else filler
    return pa.Table.from_pylist([values], schema=RUNS)


def run_step(step: str, folder: Path, num_rows: int) -> None:
    """Run one step in this process and print its seconds and peak memory as JSON."""
    store = open_store(folder)
    before, cpu_before = time.perf_counter(), time.process_time()
    if step == "publish":
        tables = {"runs": run_row(num_rows), "samples": folder / "merged.parquet", "metrics": METRICS.empty_table()}
        store.publish("bench", "bench", tables)
    else:
        metrics = aggregate(store.table("samples", run_id="bench"))
        print(metrics.num_rows, "rows of metrics", file=sys.stderr)
    seconds, cpu_seconds = time.perf_counter() - before, time.process_time() - cpu_before
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mib": peak_mib}))


def measure(num_rows: int, n_samples: int) -> dict[str, dict[str, float]]:
    """Make the samples once and run every step on them."""
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with pq.ParquetWriter(folder / "merged.parquet", SAMPLES, compression="zstd") as writer:
            for batch in make_samples(num_rows, n_samples, np.random.default_rng(0)):
                writer.write_table(batch)
        for step in STEPS:
            command = [sys.executable, __file__, "--step", step, "--folder", name, "--sizes", str(num_rows)]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            results[step] = json.loads(answer.stdout)
            took = results[step]
            print(
                f"{step:10} {num_rows:>9,} samples  {took['seconds']:7.2f} s  {took['cpu_seconds']:7.2f} CPU s  "
                f"peak {took['peak_mib']:6.0f} MiB",
                flush=True,
            )
    return results


def main() -> int:
    """Measure all sizes; exit 1 when memory went over the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--n-samples", type=int, default=4)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        run_step(options.step, options.folder, options.sizes[0])
        return 0
    results = {size: measure(size, options.n_samples) for size in sorted(options.sizes)}
    small, large = min(results), max(results)
    for step in STEPS:
        wall, cpu = (results[large][step][key] / results[small][step][key] for key in ("seconds", "cpu_seconds"))
        print(f"{step:10} time x {wall:.1f}, CPU x {cpu:.1f} for samples x {large / small:.1f}")
    peak_mib = max(result["peak_mib"] for steps in results.values() for result in steps.values())
    print(f"largest peak {peak_mib:.0f} MiB, limit {MEMORY_LIMIT_MIB} MiB")
    return int(peak_mib > MEMORY_LIMIT_MIB)


if __name__ == "__main__":
    sys.exit(main())
