"""What our worker costs over the engine's own `generate` on the same prompts, start-up apart.

    .venv/bin/python benchmarks/engine_overhead.py --data gsm8k/test.jsonl [--engine-python .venv-engine/bin/python]

Both sides run one after the other, `--rounds` times in turn, each in a process of its own with the same settings; the
ratio is that of the fastest rounds, which the machine's other work disturbs least. The ratio of CPU seconds holds on a
busy machine too, with one thread.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from infra.launchers.local import LocalLauncher  # noqa: E402 - the repository need not be installed
from infra.launchers.placement import plan_placement  # noqa: E402
from schemas.identity import prompt_hash, sample_seed  # noqa: E402
from schemas.inference import EngineSpec, WorkerSpec  # noqa: E402
from schemas.sampling import SamplingSpec  # noqa: E402
from schemas.tables import PROMPT_SCHEMA, WORK_SCHEMA  # noqa: E402
from tasks.inference.replicas.supervision import ReplicaLaunch, run_replica  # noqa: E402

BASELINE = """
import json, os, sys, time
settings = json.load(open(sys.argv[1]))
os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_OMP_THREADS_BIND="nobind", HF_HUB_OFFLINE="1")
from vllm import LLM, SamplingParams
llm = LLM(**settings["engine"])
prompts = [{"prompt_token_ids": ids} for ids in settings["prompts"]]
params = [SamplingParams(seed=seed, **settings["sampling"]) for seed in settings["seeds"]]
began, cpu = time.monotonic(), time.process_time()
outputs = llm.generate(prompts, params, use_tqdm=False)
spent, cpu = time.monotonic() - began, time.process_time() - cpu
tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
json.dump({"generate_s": spent, "cpu_s": cpu, "tokens": tokens}, open(sys.argv[2], "w"))
os._exit(0)
"""


class Spent(NamedTuple):
    """Seconds of generation, by the wall and of the process's CPU time."""

    wall_s: float
    cpu_s: float


def read_prompts(path: Path, count: int, checkpoint: Path) -> list[list[int]]:
    """Return the token ids of the first `count` questions in the demo checkpoint's chat format."""
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line][:count]
    questions = [json.loads(line)["question"] for line in lines]
    texts = [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in questions]
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


def run_baseline(folder: Path, options: argparse.Namespace, spec: WorkerSpec, prompts: list[list[int]]) -> Spent:
    """Return the time of `LLM.generate` in one call."""
    seeds = [sample_seed(spec.seed, str(number), 0) for number in range(len(prompts))]
    settings = {
        "engine": {
            "model": str(spec.engine.model_path),
            "dtype": spec.engine.dtype,
            "max_model_len": spec.engine.max_model_len,
            "max_num_seqs": spec.engine.batch_size,
            "enforce_eager": True,
            "generation_config": "vllm",
            "kv_cache_memory_bytes": 2 << 30,
            "disable_log_stats": True,
        },
        "sampling": {"temperature": 0.0, "max_tokens": spec.sampling.max_new_tokens},
        "prompts": prompts,
        "seeds": seeds,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    env = os.environ | {"OMP_NUM_THREADS": str(options.threads), "CUDA_VISIBLE_DEVICES": ""}
    command = [options.engine_python, "-c", BASELINE, folder / "settings.json", folder / "baseline.json"]
    with (folder / "baseline.log").open("wb") as log:
        subprocess.run(command, env=env, stdout=log, stderr=log, check=True)
    answer = json.loads((folder / "baseline.json").read_text())
    spent = Spent(wall_s=answer["generate_s"], cpu_s=answer["cpu_s"])
    tell("engine's own generate", spent, answer["tokens"])
    return spent


def run_worker(folder: Path, options: argparse.Namespace, spec: WorkerSpec) -> Spent:
    """Return the time from the worker's first request to its last sample."""
    (placement,) = plan_placement(1, 1, "cpu")
    launch = ReplicaLaunch(
        engine_python=options.engine_python, placement=placement, log_path=folder / "worker.log", setup_timeout_s=900
    )
    result = run_replica(spec, LocalLauncher(), launch)
    spent = Spent(wall_s=result.generate_s or float("nan"), cpu_s=result.generate_cpu_s or float("nan"))
    tell("worker", spent, result.num_completion_tokens)
    return spent


def tell(side: str, spent: Spent, num_tokens: int) -> None:
    """Print one line about one side of a round."""
    print(f"  {side:<22} {spent.wall_s:8.2f} s, CPU {spent.cpu_s:8.2f} s, {num_tokens} tokens", flush=True)


def prepare(folder: Path, options: argparse.Namespace, prompts: list[list[int]]) -> WorkerSpec:
    """Write the worker's prompts and work into `folder`."""
    rows = [
        {
            "item_id": str(number),
            "prompt_hash": prompt_hash(ids),
            "prompt": "",
            "token_ids": ids,
            "gold": "",
            "grader": "math",
            "grader_data": "",
            "subsets": [],
        }
        for number, ids in enumerate(prompts)
    ]
    work = [{"item_id": row["item_id"], "repeat": 0} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows, schema=PROMPT_SCHEMA), folder / "prompts.parquet")
    pq.write_table(pa.Table.from_pylist(work, schema=WORK_SCHEMA), folder / "work.parquet")
    return WorkerSpec(
        run_id="benchmark",
        replica=0,
        attempt=1,
        engine=EngineSpec(
            engine="vllm",
            model_path=options.checkpoint,
            dtype=options.dtype,
            max_model_len=1024,
            batch_size=options.batch_size,
            seed=0,
        ),
        sampling=SamplingSpec(temperature=0.0, top_p=1.0, top_k=-1, max_new_tokens=options.tokens, eos_token_ids=(2,)),
        seed=0,
        prompts_path=folder / "prompts.parquet",
        work_path=folder / "work.parquet",
        output_dir=folder,
        num_threads=options.threads,
    )


def main() -> None:
    """Print both times of every round and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="JSON Lines with a column `question`")
    parser.add_argument("--checkpoint", type=Path, default=ROOT / ".demo" / "smollm2-135m-instruct")
    parser.add_argument("--engine-python", type=Path, default=ROOT / ".venv-engine" / "bin" / "python")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    prompts = read_prompts(options.data, options.prompts, options.checkpoint)
    baseline: list[Spent] = []
    worker: list[Spent] = []
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", flush=True)
        with tempfile.TemporaryDirectory() as name:
            spec = prepare(Path(name), options, prompts)
            baseline.append(run_baseline(Path(name), options, spec, prompts))
            worker.append(run_worker(Path(name), options, spec))
    wall = min(each.wall_s for each in worker) / min(each.wall_s for each in baseline)
    cpu = min(each.cpu_s for each in worker) / min(each.cpu_s for each in baseline)
    print(
        f"worker / engine's own generate, start-up apart: {wall:.3f} by the wall, {cpu:.3f} by CPU time (target 1.03)"
    )


if __name__ == "__main__":
    main()
