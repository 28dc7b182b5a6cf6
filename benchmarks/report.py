"""What the report over checkpoints costs: the page, one chart, a page of samples, a comparison, over stores that grow.

    .venv/bin/python benchmarks/report.py [--checkpoints 200] [--datasets 8] [--trials 2] [--samples 1000]

Publishes made-up runs into a store of its own, a tenth of them first, and prints seconds and how they grow. Targets for
200 checkpoints x 8 datasets x 2 trials: the whole page in 20 s, a page of samples in 0.3 s.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from infra.store import Store, open_store  # noqa: E402 - the repository need not be installed
from schemas.tables import METRICS, RUNS, SAMPLES  # noqa: E402
from tasks.metrics.published import compare_runs  # noqa: E402
from tasks.report.overview_page import make_report, render_report  # noqa: E402
from tasks.report.sample_search import SampleQuery, find_samples  # noqa: E402
from tasks.report.series import read_overview  # noqa: E402

FIRST: Final = datetime(2026, 1, 1, tzinfo=UTC)
SHRINK: Final = 10
"""How many times fewer checkpoints the small store has."""
T = TypeVar("T")


def table_of(schema: pa.Schema, num_rows: int, **columns: Any) -> pa.Table:
    """Return a table of `schema`; a column that is not given is null, empty or zero."""
    arrays: list[Any] = []
    for field in schema:
        given = columns.get(field.name)
        if given is not None and not isinstance(given, list | np.ndarray):
            given = [given] * num_rows
        if given is None:
            empty = "" if pa.types.is_string(field.type) else [] if pa.types.is_nested(field.type) else 0
            arrays.append(pa.array([None if field.nullable else empty] * num_rows, field.type))
        else:
            arrays.append(pa.array(given, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def publish(store: Store, step: int, dataset: int, trial: int, num_samples: int) -> None:
    """Publish one made-up run whose accuracy grows with its step."""
    rng = np.random.default_rng([step, dataset, trial])
    score = (rng.random(num_samples) < 0.3 + 0.4 * step / (step + 50)).astype(float)
    run_id = f"20260101-{trial:02d}{step:06d}-{dataset:08d}"
    names = {
        "run_id": run_id,
        "experiment_name": "report",
        "trial_name": f"trial{trial}",
        "checkpoint": f"/checkpoints/{trial}/{step}",
        "weight_digest": f"{trial:08d}{step:08d}",
        "global_step": step,
        "dataset": f"dataset{dataset}",
        "dataset_version": "v1",
    }
    counts = {"num_planned": num_samples, "num_scored": num_samples, "num_failed": 0}
    mean, error = float(score.mean()), float(score.std() / np.sqrt(num_samples))
    estimate = {"value": mean, "stderr": error, "ci_low": mean - 2 * error, "ci_high": mean + 2 * error}
    numbers = list(range(num_samples))
    samples = table_of(
        SAMPLES,
        num_samples,
        **names,
        item_id=[f"item-{number:06d}" for number in numbers],
        prompt_hash=[f"{number:032d}" for number in numbers],
        prompt=[f"What is {number} + 1?" for number in numbers],
        completion=[f"<think>{number} + 1</think> The answer is {number + 1}." for number in numbers],
        verdict=["correct" if each else "wrong" for each in score],
        score=score,
        num_completion_tokens=rng.integers(10, 500, num_samples),
    )
    store.publish(
        run_id,
        "report",
        {
            "runs": table_of(
                RUNS, 1, **names, **counts, plan_key=run_id, engine="vllm", finished_at=FIRST + timedelta(hours=step)
            ),
            "metrics": table_of(METRICS, 1, **names, **counts, **estimate, subset="all", metric="accuracy"),
            "samples": samples,
        },
    )


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what `work` returns and the seconds that it took."""
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began


def measure(folder: Path, steps: range, options: argparse.Namespace) -> dict[str, float]:
    """Publish the runs of `steps` and return the seconds of each use."""
    store = open_store(folder)
    for step in steps:
        for dataset in range(options.datasets):
            for trial in range(options.trials):
                publish(store, step, dataset, trial, options.samples)
    overview, reading_s = timed(lambda: read_overview(store, []))
    report, making_s = timed(lambda: make_report(store, overview))
    _, rendering_s = timed(lambda: render_report(report, title="benchmark"))
    _, chart_s = timed(lambda: report.charts[0].themed_svg)
    one = overview.series[0]
    query = SampleQuery(dataset=one.dataset, series=one.name, verdict="wrong")
    _, samples_s = timed(lambda: find_samples(store, overview, query))
    runs = one.runs[-2].run_id, one.runs[-1].run_id
    _, compare_s = timed(lambda: compare_runs(store, *runs))
    return {
        "the whole page": reading_s + making_s + rendering_s,
        "  of it reading runs and metrics": reading_s,
        "  of it comparing, choosing samples": making_s,
        "one chart": chart_s,
        "a page of samples": samples_s,
        "comparing two runs": compare_s,
    }


def main() -> None:
    """Measure a small store and one of full size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=int, default=200)
    parser.add_argument("--datasets", type=int, default=8)
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--samples", type=int, default=1000)
    options = parser.parse_args()
    found: list[dict[str, float]] = []
    for num in (max(2, options.checkpoints // SHRINK), options.checkpoints):
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(Path(folder), range(num), options))
    print(f"{'seconds':<40}{'1/' + str(SHRINK):>10}{'all':>10}{'growth':>10}")
    for name in found[0]:
        few, many = (each[name] for each in found)
        print(f"{name:<40}{few:>10.2f}{many:>10.2f}{many / few:>9.1f}x")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
