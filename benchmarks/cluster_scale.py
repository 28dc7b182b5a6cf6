"""The largest documented runs on a real Slurm of one machine, with the stand-in engine.

    .venv/bin/python benchmarks/cluster_scale.py replicas      # sglang:d96p1t1 and vllm:d96t1 on 12 nodes of 8 GPUs
    .venv/bin/python benchmarks/cluster_scale.py controller    # 1,000 replicas, of which 96 run at once

`replicas`: where each of the 96 replicas runs, whether their work is balanced, and, with the second backend, what is
lost when two nodes fail midway. `controller`: the CPU time, memory and threads of the command's own process, and its
requests to Slurm. The nodes are slurmd processes with pretend GPUs (root). Exit code 1 when a bound is broken.
"""

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import psutil

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.faults.audit import audit, published_samples  # noqa: E402 - the repository need not be installed
from benchmarks.faults.scene import Command, Pace, Scene, World  # noqa: E402
from benchmarks.faults.services import end_on_sigterm, prefect_server, slurm_cluster  # noqa: E402
from infra.devcluster.cluster import DevCluster  # noqa: E402
from infra.run_directory import list_runs  # noqa: E402
from infra.store import open_store  # noqa: E402
from schemas.identity import SampleKey  # noqa: E402

NUM_NODES: Final = 12
GPUS_PER_NODE: Final = 8
NUM_REPLICAS: Final = NUM_NODES * GPUS_PER_NODE
BALANCE: Final = 0.10
"""Most that the work of one replica may differ from the mean."""
_LOOK_S: Final = 0.5
_CONTROLLER_REQUESTS: Final = re.compile(
    r"REQUEST_(SUBMIT_BATCH_JOB|JOB_INFO|JOB_INFO_SINGLE|JOB_USER_INFO|JOB_STEP_INFO|KILL_JOB|CANCEL_JOB_STEP|"
    r"NODE_INFO|PARTITION_INFO|BUILD_INFO|PING|CONFIG|STATS_INFO)\b.*?count:(\d+)"
)
"""What clients ask; the rest are nodes that report."""


class Cost(NamedTuple):
    """What a process took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    num_threads: int


def watch(command: Command) -> Cost:
    """Wait for a command and return what its own process took, its children not included."""
    began, cpu_s, peak_bytes, num_threads = time.monotonic(), 0.0, 0, 0
    process = psutil.Process(command.process.pid)
    while command.is_running:
        try:
            times = process.cpu_times()
            cpu_s = times.user + times.system
            peak_bytes = max(peak_bytes, process.memory_info().rss)
            num_threads = max(num_threads, process.num_threads())
        except psutil.Error:
            break
        time.sleep(_LOOK_S)
    command.process.wait()
    return Cost(time.monotonic() - began, cpu_s, peak_bytes, num_threads)


def nodes_in_use(scene: Scene) -> Counter[str]:
    """Return how many replicas run on each node."""
    return Counter(scene.ask("squeue", "-h", "-r", "-t", "running", "-o", "%N").split())


def requests_to_slurm(scene: Scene) -> Counter[str]:
    """Return how many requests of each kind the cluster's controller has had from clients."""
    listing = scene.ask("sdiag").partition("by user")[0]
    return Counter({kind: int(count) for kind, count in _CONTROLLER_REQUESTS.findall(listing)})


def print_cost(cost: Cost, requests: Counter[str]) -> None:
    """Print what a controller took."""
    print(
        f"  controller: {cost.cpu_s:.1f} CPU s in {cost.wall_s:.0f} s ({cost.cpu_s / cost.wall_s:.1%} of a core), "
        f"peak {cost.peak_bytes / 2**20:.0f} MiB, at most {cost.num_threads} threads"
    )
    named = ", ".join(f"{count} {kind}" for kind, count in requests.most_common() if count)
    print(f"  requests to Slurm: {requests.total() / cost.wall_s:.2f}/s ({named})", flush=True)


def run_replicas(scene: Scene, backend: str, *, fails: bool) -> bool:
    """Run 96 replicas, without or with two nodes that fail midway; print and return whether every bound holds."""
    print(f"{backend}, {'two nodes fail midway' if fails else 'undisturbed'}", flush=True)
    num_samples = scene.world.num_items * 2
    before = requests_to_slurm(scene)
    command = scene.start(backend)
    placed: Counter[str] = Counter()
    while command.is_running and placed.total() < NUM_REPLICAS:
        placed = nodes_in_use(scene)
        time.sleep(_LOOK_S)
    print(f"  placed: {placed.total()} replicas, {sorted(set(placed.values()))} on each of {len(placed)} nodes")
    fault_at = None
    if fails:
        while command.is_running and scene.num_finished() < num_samples / 2:
            time.sleep(_LOOK_S)
        fault_at = time.time()
        for node in random.Random(1).sample(sorted(placed), 2):
            scene.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=benchmark")
    cost = watch(command)
    print_cost(cost, requests_to_slurm(scene) - before)
    if fails:
        for node in placed:
            scene.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
    if command.process.returncode:
        print(f"  ended with exit code {command.process.returncode}: {command.messages[-500:]}")
        command = scene.start(backend)
        command.wait(600)
    is_sound = report_samples(scene, fault_at)
    is_balanced = fails or report_balance(scene)
    is_placed = set(placed.values()) == {GPUS_PER_NODE} and len(placed) == NUM_NODES
    return command.process.returncode == 0 and is_sound and is_balanced and is_placed


def report_samples(scene: Scene, fault_at: float | None) -> bool:
    """Print what was lost, published twice or made again, by the run's own plan."""
    (run,) = list_runs(scene.fileroot)
    plan = run.read_plan()
    published = dict(published_samples(scene.fileroot))
    planned = {SampleKey(item.item_id, repeat) for item in plan.items for repeat in range(plan.n_samples)}
    found = audit(scene.fileroot, {key: published.get(key) for key in planned}, fault_at)
    print(
        f"  {len(planned)} samples planned: {found.num_lost} lost, {found.num_duplicated} published twice, "
        f"{found.num_extra} generated again, {found.num_late} of them although finished for 1 s; "
        f"{len(scene.commands)} commands",
        flush=True,
    )
    return found.is_sound


def report_balance(scene: Scene) -> bool:
    """Print how the samples and tokens of the replicas differ from the mean."""
    table = open_store(scene.fileroot).table("samples").to_table(columns=["replica", "num_completion_tokens"])
    samples: Counter[int] = Counter()
    tokens: Counter[int] = Counter()
    for row in table.to_pylist():
        samples[row["replica"]] += 1
        tokens[row["replica"]] += row["num_completion_tokens"]
    spread = {name: _largest_difference(counts) for name, counts in (("samples", samples), ("tokens", tokens))}
    print(f"  farthest from the mean: {spread['samples']:.1%} of samples, {spread['tokens']:.1%} of tokens", flush=True)
    return spread["samples"] <= BALANCE


def _largest_difference(counts: Counter[int]) -> float:
    mean = counts.total() / NUM_REPLICAS
    return max(abs(counts[replica] - mean) / mean for replica in range(NUM_REPLICAS))


def run_controller(scene: Scene, backend: str) -> bool:
    """Run a plan of many replicas; print what its controller took and return whether nothing was lost."""
    print(f"{backend}, of which {NUM_REPLICAS} run at once", flush=True)
    before = requests_to_slurm(scene)
    command = scene.start(backend)
    cost = watch(command)
    print_cost(cost, requests_to_slurm(scene) - before)
    if command.process.returncode:
        print(f"  ended with exit code {command.process.returncode}: {command.messages[-500:]}")
    return report_samples(scene, None) and command.process.returncode == 0


def measure(options: argparse.Namespace, folder: Path, cluster: DevCluster, environment: dict[str, str]) -> bool:
    """Measure what was asked for; return whether every bound holds."""
    is_wide = options.what == "replicas"
    world = World(
        environment=environment | {"SLURM_CONF": str(cluster.paths.slurm_conf)},
        checkpoint=options.checkpoint.absolute(),
        engine_python=options.engine_python.absolute(),
        cluster=cluster,
        num_items=10 * NUM_REPLICAS if is_wide else 2 * options.replicas,
        step_s=0.2 if is_wide else 0.0,
    )
    overrides = [f"cluster.n_nodes={NUM_NODES}", "scheduler.slurm.memory=400M"]
    are_met = True
    for number, backend in enumerate(options.backends if is_wide else [f"vllm:d{options.replicas}"]):
        run = folder / f"run-{number}"
        run.mkdir()
        pace = Pace(0.0, 0.0, 0)
        scene = Scene(world=world, folder=run, rng=random.Random(1), overrides=list(overrides), pace=pace)
        try:
            if is_wide:
                are_met &= run_replicas(scene, backend, fails=number == len(options.backends) - 1)
            else:
                are_met &= run_controller(scene, backend)
        finally:
            scene.end()
    return are_met


def main() -> int:
    """Measure one of the two on a cluster that is brought up for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["replicas", "controller"])
    parser.add_argument("--replicas", type=int, default=1000, help="of the plan whose controller is measured")
    parser.add_argument(
        "--backends", nargs="+", default=["sglang:d96p1t1", "vllm:d96t1"], help="nodes fail in the last"
    )
    parser.add_argument("--checkpoint", type=Path, default=ROOT / ".demo" / "smollm2-135m-instruct")
    parser.add_argument("--engine-python", type=Path, default=ROOT / ".venv-engine" / "bin" / "python")
    parser.add_argument("--keep", type=Path, help="folder for all files, empty or new; default: removed at the end")
    options = parser.parse_args()
    end_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="milepost-scale-") as temporary:
        folder = Path(temporary) if options.keep is None else options.keep.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with (
            prefect_server(folder / "prefect") as environment,
            slurm_cluster(folder / "cluster", num_nodes=NUM_NODES, gpus_per_node=GPUS_PER_NODE) as cluster,
        ):
            are_met = measure(options, folder, cluster, environment)
    return 0 if are_met else 1


if __name__ == "__main__":
    sys.exit(main())
