"""What a controller does with many samples, without an engine: is time linear, is memory bounded?

    python benchmarks/controller_scale.py [--items 25000 250000] [--n-samples 4]

Plans a run, writes the journals that two workers would have left, then grades, merges, aggregates and publishes through
the stages of the flow, all in one process as a controller does. Prints wall seconds, CPU seconds (of all threads; what
to compare on a machine that others use too) and the peak memory of each stage, then how they grow. Exit code 1 when
the peak is above the limit, or when the CPU time of all stages grows twice as much as the number of samples: other
work on the machine alone changes it by half, and anything quadratic would grow ten times as much.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from infra.jobs.base import Placement  # noqa: E402 - the repository need not be installed
from infra.machine.provenance import collect_provenance  # noqa: E402
from schemas.checkpoint import CheckpointIdentity  # noqa: E402
from schemas.config import EvaluationConfig  # noqa: E402
from schemas.identity import prompt_hash, sample_seed  # noqa: E402
from schemas.inference import PlannedItem, WorkerSpec  # noqa: E402
from schemas.sampling import SamplingSpec  # noqa: E402
from schemas.tables import JOURNAL_SCHEMA, PROMPT_SCHEMA, conform  # noqa: E402
from tasks.grading.following import grade_run  # noqa: E402
from tasks.inference.exchange.journal import SEGMENT_SIZE  # noqa: E402
from tasks.inference.planning.plan import PlanSettings, make_plan  # noqa: E402
from tasks.inference.planning.replica_spec import ReplicaSettings  # noqa: E402
from tasks.inference.runs.open_run import open_run  # noqa: E402
from tasks.inference.runs.session import RunSession  # noqa: E402
from tasks.inference.stage import merge_run  # noqa: E402
from tasks.metrics.stage import aggregate_run  # noqa: E402
from tasks.report.page import NO_GUARDS  # noqa: E402
from tasks.report.publication import publish_run  # noqa: E402

MEMORY_LIMIT_MIB: Final = 1536
GROWTH_ALLOWANCE: Final = 1.25
NUM_REPLICAS: Final = 2
_PROMPT_TOKENS: Final = 80
_FILLER: Final = "We add the first number to the second one and keep the sum in mind. "


class Cost(TypedDict):
    """What one stage took."""

    stage: str
    seconds: float
    cpu_seconds: float
    peak_mib: float


@contextmanager
def measured(stage: str, costs: list[Cost]) -> Generator[None]:
    """Append what the block takes to `costs`, and print it."""
    Path("/proc/self/clear_refs").write_text("5")  # the kernel's peak begins anew
    began, cpu = time.perf_counter(), time.process_time()
    yield
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    status = Path("/proc/self/status").read_text()
    peak_mib = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    costs.append(Cost(stage=stage, seconds=seconds, cpu_seconds=cpu, peak_mib=peak_mib))
    print(f"  {stage:<10} {seconds:8.2f} s  {cpu:8.2f} CPU s  peak {peak_mib:6.0f} MiB", file=sys.stderr, flush=True)


def render(num_items: int) -> tuple[pa.Table, tuple[PlannedItem, ...]]:
    """Return prompts of 80 tokens and some 300 characters, a number as gold, 7 subjects; and the items to plan."""
    tables: list[pa.Table] = []
    items: list[PlannedItem] = []
    for start in range(0, num_items, 1024):
        numbers = range(start, min(start + 1024, num_items))
        token_ids = [array("i", range(number % 1000, number % 1000 + _PROMPT_TOKENS)) for number in numbers]
        hashes = [prompt_hash(ids) for ids in token_ids]
        items += [
            PlannedItem(item_id=f"item-{number:09}", prompt_hash=digest, num_prompt_tokens=_PROMPT_TOKENS)
            for number, digest in zip(numbers, hashes, strict=True)
        ]
        columns: dict[str, Any] = {
            "item_id": [f"item-{number:09}" for number in numbers],
            "prompt_hash": hashes,
            "prompt": [f"Problem {number}. " + "What is it? " * 24 for number in numbers],
            "token_ids": pa.array([np.frombuffer(ids, np.int32) for ids in token_ids], pa.list_(pa.int32())),
            "gold": [str(number) for number in numbers],
            "grader": ["math"] * len(numbers),
            "grader_data": [""] * len(numbers),
            "subsets": pa.array(
                [[("subject", f"s{number % 7}")] for number in numbers], PROMPT_SCHEMA.field("subsets").type
            ),
        }
        tables.append(pa.table(columns, schema=PROMPT_SCHEMA))
    return pa.concat_tables(tables), tuple(items)


class StartedRun(NamedTuple):
    """A planned run."""

    config: EvaluationConfig
    session: RunSession
    prompts: pa.Table
    """Held to the end, as by the flow."""


def start_run(fileroot: Path, num_items: int, n_samples: int, costs: list[Cost]) -> StartedRun:
    """Plan a run of made prompts and divide it among the replicas."""
    config = EvaluationConfig.model_validate(
        {
            "experiment_name": "bench",
            "actor": {"path": "none"},
            "valid_dataset": {"path": "made"},
            "gconfig": {"n_samples": n_samples},
            "rollout": {"backend": f"vllm:d{NUM_REPLICAS}"},
            "cluster": {"fileroot": str(fileroot)},
        }
    )
    prompts, items = render(num_items)
    sampling = SamplingSpec(temperature=1.0, top_p=1.0, top_k=-1, max_new_tokens=256, eos_token_ids=(2,))
    settings = PlanSettings(
        seed=1, n_samples=n_samples, engine="vllm", dtype="bfloat16", max_model_len=512, sampling=sampling
    )
    identity = CheckpointIdentity(
        weight_digest="0" * 32,
        tokenizer_digest="1" * 32,
        chat_template_digest="2" * 32,
        model_config_digest="3" * 32,
    )
    replicas = ReplicaSettings(
        model_path=Path("none"),
        batch_size=128,
        engine_python=Path(sys.executable),
        device="cpu",
        placements=(Placement(num_gpus=0, num_cpus=1),) * NUM_REPLICAS,
    )
    provenance = collect_provenance()
    with measured("plan", costs):
        plan = make_plan(
            identity=identity, dataset="made", dataset_version="3" * 32, items=items, refused=(), settings=settings
        )
        record = open_run(config, plan, prompts, global_step=None, now=datetime.now(UTC))
        session = RunSession(record, config, replicas, provenance)
    return StartedRun(config, session, prompts)


def write_journal(spec: WorkerSpec) -> None:
    """Leave the segments of a worker that made all of its work: some 600 characters per sample, 60% correct."""
    rng = np.random.default_rng(spec.replica)
    prompts: dict[str, list[str]] = pq.read_table(
        spec.prompts_path, columns=["item_id", "prompt_hash", "gold"]
    ).to_pydict()
    known = dict(zip(prompts["item_id"], zip(prompts["prompt_hash"], prompts["gold"], strict=True), strict=True))
    work = pq.read_table(spec.work_path)
    order = rng.permutation(work.num_rows)
    folder = spec.output_dir / "segments"
    folder.mkdir()
    for number, start in enumerate(range(0, work.num_rows, SEGMENT_SIZE)):
        rows = work.take(order[start : start + SEGMENT_SIZE])
        keys: dict[str, Any] = rows.to_pydict()
        ids, repeats = keys["item_id"], keys["repeat"]
        count = rows.num_rows
        golds = [known[item_id][1] for item_id in ids]
        answers = [gold if hit else f"{gold}1" for gold, hit in zip(golds, rng.random(count) < 0.6, strict=True)]
        lengths = rng.integers(4, 12, count)
        columns: dict[str, Any] = {
            "item_id": ids,
            "repeat": repeats,
            "prompt_hash": [known[item_id][0] for item_id in ids],
            "completion": [
                _FILLER * int(length) + f"The answer is \\boxed{{{answer}}}."
                for length, answer in zip(lengths, answers, strict=True)
            ],
            "finish_reason": ["stop"] * count,
            "num_prompt_tokens": [_PROMPT_TOKENS] * count,
            "num_completion_tokens": pa.array(lengths * 15, pa.int32()),
            "mean_logprob": rng.normal(-0.5, 0.1, count),
            "entropy": pa.nulls(count, pa.float64()),
            "seed": [sample_seed(spec.seed, item_id, repeat) for item_id, repeat in zip(ids, repeats, strict=True)],
            "latency_s": rng.random(count),
            "batch_size": [spec.engine.batch_size] * count,
            "replica": [spec.replica] * count,
            "attempt": [spec.attempt] * count,
            "finished_at": np.full(count, 1.7e9),
            "error": pa.nulls(count, pa.string()),
        }
        pq.write_table(conform(pa.table(columns), JOURNAL_SCHEMA), folder / f"{number:05d}.parquet", compression="zstd")


def write_journals(session: RunSession) -> None:
    """Leave every replica's journal, in a process of its own: what that takes is not the controller's."""
    for spec in session.replicas.specs:
        path = spec.output_dir / "spec.json"
        path.write_text(spec.model_dump_json())
        subprocess.run([sys.executable, __file__, "--journal", str(path)], check=True)


def run_controller(num_items: int, n_samples: int) -> list[Cost]:
    """Return what each stage of one run takes."""
    costs: list[Cost] = []
    with tempfile.TemporaryDirectory() as name:
        started = start_run(Path(name), num_items, n_samples, costs)
        config, session = started.config, started.session
        write_journals(session)
        with session:
            with measured("grade", costs):
                grade_run(session.record, config.grading, is_generating=lambda: False)
            with measured("merge", costs):
                certificate = merge_run(session.record)
            with measured("aggregate", costs):
                aggregate_run(session.record.run, config.metrics)
            with measured("publish", costs):
                summary = publish_run(config, session.record, certificate, NO_GUARDS)
    if summary.num_scored != num_items * n_samples:
        raise SystemExit(f"{summary.num_scored} samples were scored, {num_items * n_samples} expected")
    return costs


def total(costs: list[Cost], of: Callable[[Cost], float]) -> float:
    """Return the sum over all stages."""
    return sum(of(cost) for cost in costs)


def main() -> int:
    """Measure all sizes, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[25_000, 250_000])
    parser.add_argument("--n-samples", type=int, default=4)
    parser.add_argument("--run", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--journal", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.journal:
        write_journal(WorkerSpec.model_validate_json(options.journal.read_bytes()))
        return 0
    if options.run:
        print(json.dumps(run_controller(options.run, options.n_samples)))
        return 0
    results: dict[int, list[Cost]] = {}
    for num_items in sorted(options.items):
        print(f"{num_items * options.n_samples:,} samples", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--run", str(num_items), "--n-samples", str(options.n_samples)]
        results[num_items] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    small, large = min(results), max(results)
    for before, after in zip(results[small], results[large], strict=True):
        growth = after["cpu_seconds"] / before["cpu_seconds"]
        print(f"{after['stage']:<10} CPU x {growth:.1f} for samples x {large / small:.1f}")
    growth = total(results[large], lambda cost: cost["cpu_seconds"]) / total(
        results[small], lambda cost: cost["cpu_seconds"]
    )
    peak_mib = max(cost["peak_mib"] for costs in results.values() for cost in costs)
    print(
        f"all        CPU x {growth:.1f}, {total(results[large], lambda cost: cost['seconds']):.1f} s and "
        f"{total(results[large], lambda cost: cost['cpu_seconds']):.1f} CPU s for {large * options.n_samples:,} samples"
    )
    print(f"largest peak {peak_mib:.0f} MiB, limit {MEMORY_LIMIT_MIB} MiB")
    return int(peak_mib > MEMORY_LIMIT_MIB or growth > GROWTH_ALLOWANCE * large / small)


if __name__ == "__main__":
    sys.exit(main())
