"""`milepost evaluate` against the engine's own `generate` on the same prompts, in one run.

    MILEPOST_TEST_DATA=... .venv/bin/python benchmarks/end_to_end.py [--quick] [--rounds 2] [--threads N]

Three programs, each in processes of its own, in alternating order (A B C, C B A, ...): `engine`, one call of
`LLM.generate` with the sampling parameters, seeds and log-probabilities that Milepost asks for; `plain`, the same call
with neither seeds nor log-probabilities; `milepost`, the command with a Prefect server running. Model, dtype, token
ids, batch size, context length, KV cache and threads are the same. Prints every measurement and the medians' ratios:

    start-up apart      first request to published tables   / seconds inside `generate`
    start-up included   start to end of the command         / start to end of the engine's program
    first token         start of the command to first token - the same of the engine's program

and the controller's own CPU time while the worker generates. A machine that others use too disturbs the wall, with more
than one thread most of all: CPU seconds are printed beside it.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import psutil

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from flows.orchestration.local_server import LocalServer  # noqa: E402 - the repository need not be installed
from infra.checkpoints import inspect_checkpoint  # noqa: E402
from infra.engines.cache_size import kv_cache_bytes  # noqa: E402
from infra.fileroot.run_directory import list_runs  # noqa: E402
from schemas.config import EvaluationConfig  # noqa: E402
from schemas.identity import sample_seed  # noqa: E402
from schemas.inference import EngineSpec  # noqa: E402
from tasks.inference.exchange.worker_files import read_result  # noqa: E402
from tasks.inference.planning.plan import default_batch_size  # noqa: E402
from tasks.validation_set.loading import load_validation_set  # noqa: E402

ENGINE_PROGRAM: Final = """
import json, os, sys, time
settings = json.load(open(sys.argv[1]))
from vllm import LLM, SamplingParams
llm = LLM(**settings["engine"])
ready = time.time()
prompts = [{"prompt_token_ids": ids} for ids in settings["prompts"]]
if settings["is_plain"]:
    params = SamplingParams(**settings["sampling"])
else:
    kept = {"logprobs": 0, "flat_logprobs": True}
    params = [SamplingParams(seed=seed, **kept, **settings["sampling"]) for seed in settings["seeds"]]
first, step = [], llm.llm_engine.step
def noted_step():
    outputs = step()
    if not first:
        first.append(time.time())
    return outputs
llm.llm_engine.step = noted_step
began, cpu = time.time(), time.process_time()
outputs = llm.generate(prompts, params, use_tqdm=False)
ended, cpu = time.time(), time.process_time() - cpu
tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
times = {"ready": ready, "began": began, "first": first[0], "ended": ended, "cpu_s": cpu, "tokens": tokens}
json.dump(times, open(sys.argv[2], "w"))
sys.stdout.flush()
os._exit(0)
"""
ENGINE_ENVIRONMENT: Final = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
}
"""As the worker sets it: in-process, nothing compiled, threads where the launcher put them."""
_LOOK_S: Final = 0.25


class Job(NamedTuple):
    """One workload."""

    name: str
    num_prompts: int
    max_new_tokens: int


JOBS: Final = (Job("first 128 problems, 192 new tokens", 128, 192), Job("512 short ones, 32 new tokens", 512, 32))
QUICK_JOBS: Final = (Job("first 16 problems, 32 new tokens", 16, 32),)


class Times(NamedTuple):
    """One measurement; seconds."""

    total_s: float
    """Start to end of the program, by its parent."""
    first_token_s: float
    """Start of the program to the first token."""
    work_s: float
    """First request to last sample; of Milepost to published tables."""
    generate_s: float
    """First request to last sample."""
    cpu_s: float
    """CPU time of the whole program, its processes included."""
    generate_cpu_s: float
    """CPU time of the engine's process while it generates."""
    controller_share: float | None
    """CPU time of the controller per second of generation; None without a controller."""
    num_tokens: int


class Setting(NamedTuple):
    """What both sides are told."""

    config: dict[str, object]
    engine: dict[str, object]
    sampling: dict[str, object]
    prompts: list[list[int]]
    seeds: list[int]
    threads: int
    engine_python: Path


def prepare(job: Job, options: argparse.Namespace) -> Setting:
    """Render the prompts as Milepost does and settle what the engine is given."""
    document: dict[str, object] = {
        "experiment_name": "bench",
        "actor": {"path": str(options.checkpoint), "dtype": options.dtype},
        "rollout": {"backend": "vllm:d1", "max_concurrent_rollouts": options.batch_size},
        "engine": {"python": str(options.engine_python)},
        "valid_dataset": {"path": str(options.data), "limit": job.num_prompts},
        "gconfig": {"greedy": True, "max_new_tokens": job.max_new_tokens},
    }
    config = EvaluationConfig.model_validate(document)
    report = inspect_checkpoint(options.checkpoint)
    asked = load_validation_set(config, report, options.checkpoint)
    spec = EngineSpec(
        engine="vllm",
        model_path=options.checkpoint,
        dtype=options.dtype,
        max_model_len=asked.max_model_len,
        batch_size=options.batch_size,
        seed=config.seed,
    )
    table = asked.prompts.table
    prompts: list[list[int]] = [ids or [] for ids in table.column("token_ids").to_pylist()]
    names: list[str] = [str(name) for name in table.column("item_id").to_pylist()]
    engine: dict[str, object] = {
        "model": str(options.checkpoint),
        "dtype": options.dtype,
        "seed": config.seed,
        "max_model_len": asked.max_model_len,
        "max_num_seqs": options.batch_size,
        "generation_config": "vllm",
        "enforce_eager": True,
        "kv_cache_memory_bytes": kv_cache_bytes(spec, psutil.virtual_memory().available).granted,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(asked.max_model_len, 4096),
        "disable_log_stats": True,
    }
    sampling: dict[str, object] = {
        "temperature": 0.0,
        "max_tokens": job.max_new_tokens,
        "stop_token_ids": list(report.eos_token_ids),
        "ignore_eos": True,
    }
    seeds = [sample_seed(config.seed, name, 0) for name in names]
    return Setting(document, engine, sampling, prompts, seeds, options.threads, options.engine_python)


def run_engine(setting: Setting, folder: Path, *, is_plain: bool) -> Times:
    """Measure one call of `LLM.generate` in a process of its own."""
    settings = {name: getattr(setting, name) for name in ("engine", "sampling", "prompts", "seeds")}
    (folder / "settings.json").write_text(json.dumps(settings | {"is_plain": is_plain}))
    env = os.environ | ENGINE_ENVIRONMENT | {"OMP_NUM_THREADS": str(setting.threads), "CUDA_VISIBLE_DEVICES": ""}
    command = [str(setting.engine_python), "-c", ENGINE_PROGRAM, str(folder / "settings.json"), str(folder / "times")]
    began = time.time()
    with (folder / "log").open("wb") as log:
        process = psutil.Popen(command, env=env, stdout=log, stderr=log)
        total_s, cpu_s, _ = watch(process, began)
    times = json.loads((folder / "times").read_text())
    spent = times["ended"] - times["began"]
    return Times(
        total_s=total_s,
        first_token_s=times["first"] - began,
        work_s=spent,
        generate_s=spent,
        cpu_s=cpu_s,
        generate_cpu_s=times["cpu_s"],
        controller_share=None,
        num_tokens=times["tokens"],
    )


def run_milepost(setting: Setting, folder: Path) -> Times:
    """Measure the command; the store is new, so that nothing is known of the checkpoint."""
    (folder / "config.yaml").write_text(json.dumps(setting.config | {"cluster": {"fileroot": str(folder / "out")}}))
    command = [sys.executable, "-c", "from flows.cli import main; main()", "evaluate", str(folder / "config.yaml")]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    began = time.time()
    with (folder / "log").open("wb") as log:
        process = psutil.Popen(command, env=env, cwd=folder, stdout=log, stderr=log)
        total_s, cpu_s, looks = watch(process, began)
    (run,) = list_runs(folder / "out")
    result, finished_at = read_result(run.replica_dir(1, 0)), run.read_state().finished_at
    if result is None or finished_at is None or result.started_at is None:
        raise SystemExit(f"the run did not finish: {(folder / 'log').read_text()}")
    ready_s, first_s, generate_s = result.startup_s or 0.0, result.first_token_s or 0.0, result.generate_s or 0.0
    ready = result.started_at + ready_s
    return Times(
        total_s=total_s,
        first_token_s=result.started_at + first_s - began,
        work_s=finished_at.timestamp() - ready,
        generate_s=generate_s,
        cpu_s=cpu_s,
        generate_cpu_s=result.generate_cpu_s or 0.0,
        controller_share=cpu_between(looks, ready, ready + generate_s),
        num_tokens=result.num_completion_tokens,
    )


def watch(process: psutil.Popen, began: float) -> tuple[float, float, list[tuple[float, float]]]:
    """Wait for a program; return its wall seconds, its CPU seconds, and (Unix time, own CPU seconds) now and then."""
    before = os.times()
    looks: list[tuple[float, float]] = []
    while process.poll() is None:
        try:
            own = process.cpu_times()
            looks.append((time.time(), own.user + own.system))
        except psutil.Error:
            break
        try:
            process.wait(_LOOK_S)
        except psutil.TimeoutExpired:
            continue
    code = process.wait()
    total_s, after = time.time() - began, os.times()
    if code:
        raise SystemExit(f"the program ended with exit code {code}; {process.args}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return total_s, cpu_s, looks


def cpu_between(looks: Sequence[tuple[float, float]], start: float, end: float) -> float | None:
    """Return CPU seconds per second of the looks between two times."""
    inside = [look for look in looks if start <= look[0] <= end]
    if len(inside) < 2:
        return None
    (first, first_cpu), (last, last_cpu) = inside[0], inside[-1]
    return (last_cpu - first_cpu) / (last - first)


def measure(setting: Setting, rounds: int, *, with_plain: bool) -> dict[str, list[Times]]:
    """Run all programs `rounds` times in alternating order."""
    names = ["engine", "plain", "milepost"] if with_plain else ["engine", "milepost"]
    measured: dict[str, list[Times]] = {name: [] for name in names}
    for number in range(rounds):
        for name in reversed(names) if number % 2 else names:
            with tempfile.TemporaryDirectory() as folder:
                if name == "milepost":
                    times = run_milepost(setting, Path(folder))
                else:
                    times = run_engine(setting, Path(folder), is_plain=name == "plain")
            measured[name].append(times)
            share = "" if times.controller_share is None else f", controller {times.controller_share:.1%} of a core"
            print(
                f"  {name:<9} total {times.total_s:7.2f} s, first token {times.first_token_s:6.2f} s, work "
                f"{times.work_s:7.2f} s, generate {times.generate_s:7.2f} s; CPU {times.cpu_s:7.2f} s, generate "
                f"{times.generate_cpu_s:7.2f} s; {times.num_tokens} tokens; load {os.getloadavg()[0]:.1f}{share}",
                flush=True,
            )
    return measured


def median(times: Sequence[Times], field: str) -> float:
    """Return the median of one field."""
    return statistics.median(getattr(each, field) for each in times)


def report(measured: dict[str, list[Times]]) -> bool:
    """Print the ratios of the medians; return whether the targets are met."""
    ours, engine = measured["milepost"], measured["engine"]
    apart = median(ours, "work_s") / median(engine, "generate_s")
    included = median(ours, "total_s") / median(engine, "total_s")
    later_s = median(ours, "first_token_s") - median(engine, "first_token_s")
    print(f"  start-up apart    {apart:.3f} (target 1.05)")
    print(f"  start-up included {included:.3f} (target 1.10)")
    print(f"  first token       {later_s:+.1f} s (target +5 s)")
    print(f"  CPU: all {median(ours, 'cpu_s') / median(engine, 'cpu_s'):.3f}, generation alone "
          f"{median(ours, 'generate_cpu_s') / median(engine, 'generate_cpu_s'):.3f}")  # fmt: skip
    if "plain" in measured:
        plain = measured["plain"]
        print(
            f"  over the plain call: start-up apart {median(ours, 'work_s') / median(plain, 'generate_s'):.3f}, "
            f"included {median(ours, 'total_s') / median(plain, 'total_s'):.3f}"
        )
    return apart <= 1.05 and included <= 1.10 and later_s <= 5


def main() -> int:
    """Measure every job; exit code 1 when a target is missed."""
    data = os.environ.get("MILEPOST_TEST_DATA", "")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(data, "gsm8k", "test.jsonl"))
    parser.add_argument("--checkpoint", type=Path, default=ROOT / ".demo" / "smollm2-135m-instruct")
    parser.add_argument("--engine-python", type=Path, default=ROOT / ".venv-engine" / "bin" / "python")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch-size", type=int, default=default_batch_size("vllm", on_gpu=False))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="Pins to as many cores")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", type=int, nargs="+", default=list(range(len(JOBS))), help="Indices of the jobs")
    parser.add_argument("--no-plain", action="store_true", help="Leave the plain call out")
    parser.add_argument("--quick", action="store_true", help="One small job: does it work at all")
    options = parser.parse_args()
    if not options.data.is_file():
        parser.error(f"no data at {options.data}: set MILEPOST_TEST_DATA, or name a file with --data")
    options.checkpoint = options.checkpoint.resolve()
    are_met = True
    with tempfile.TemporaryDirectory() as home:
        os.environ["PREFECT_HOME"] = home
        with LocalServer(Path(home)) as server:
            os.environ["PREFECT_API_URL"] = server.wait_ready()
            os.environ["PREFECT_API_AUTH_STRING"] = server.login
            # the worker's threads are the cores that its controller may use; the server stays free
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
            for job in QUICK_JOBS if options.quick else [JOBS[index] for index in options.jobs]:
                print(f"{job.name}: {options.threads} threads, batch {options.batch_size}, {options.dtype}", flush=True)
                setting = prepare(job, options)
                are_met &= report(measure(setting, options.rounds, with_plain=not options.no_plain))
    return 0 if are_met else 1


if __name__ == "__main__":
    sys.exit(main())
