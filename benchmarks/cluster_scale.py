"""The largest documented runs on a real Slurm of one machine, with the stand-in engine.

    .venv/bin/python benchmarks/cluster_scale.py placement     # sglang:d96p1t1 on 12 nodes of 8 GPUs
    .venv/bin/python benchmarks/cluster_scale.py failures      # vllm:d96t1 on the same, two nodes fail midway
    .venv/bin/python benchmarks/cluster_scale.py controller    # vllm:d1000, of which 96 run at once

Prints where the replicas run, how their work is balanced, what is lost or made again, the CPU time, memory and threads
of the command's own process, and its requests to Slurm. The nodes are slurmd processes with pretend GPUs (root); the
work is set for a machine of two cores, on which 96 workers take a minute to start. Exit code 1 when a bound is broken.
"""

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import psutil
import pyarrow.parquet as pq

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.faults.audit import audit, published_samples  # noqa: E402 - the repository need not be installed
from benchmarks.faults.scene import N_SAMPLES, Command, Pace, Scene, World  # noqa: E402
from benchmarks.faults.services import end_on_signals, prefect_server, slurm_cluster  # noqa: E402
from infra.devcluster.cluster import DevCluster  # noqa: E402
from infra.fileroot.run_directory import list_runs  # noqa: E402
from schemas.backend import parse_backend  # noqa: E402
from schemas.identity import SampleKey  # noqa: E402
from tasks.inference.exchange.journal import read_journal  # noqa: E402

NUM_NODES: Final = 12
GPUS_PER_NODE: Final = 8
NUM_GPUS: Final = NUM_NODES * GPUS_PER_NODE
BACKENDS: Final = {"placement": "sglang:d96p1t1", "failures": "vllm:d96t1", "controller": "vllm:d1000"}
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


def print_cost(cost: Cost) -> None:
    """Print what a controller took."""
    print(
        f"  controller: {cost.cpu_s:.1f} CPU s in {cost.wall_s:.0f} s ({cost.cpu_s / cost.wall_s:.1%} of a core), "
        f"peak {cost.peak_bytes / 2**20:.0f} MiB, at most {cost.num_threads} threads",
        flush=True,
    )


def print_requests(requests: Counter[str], wall_s: float) -> None:
    """Print what a controller asked Slurm."""
    named = ", ".join(f"{count} {kind}" for kind, count in requests.most_common() if count)
    print(f"  requests to Slurm: {requests.total() / wall_s:.2f}/s ({named})", flush=True)


def run_all_at_once(scene: Scene, backend: str, *, fails: bool) -> bool:
    """Run as many replicas as there are GPUs, two nodes failing midway or not; return whether every bound holds."""
    num_samples = scene.world.num_items * N_SAMPLES
    command = scene.start(backend)
    placed: Counter[str] = Counter()
    while command.is_running and placed.total() < NUM_GPUS:
        placed = nodes_in_use(scene)
        time.sleep(_LOOK_S)
    print(
        f"  placed: {placed.total()} replicas, {sorted(set(placed.values()))} on each of {len(placed)} nodes",
        flush=True,
    )
    fault_at, was_hit = None, False
    if fails:
        while command.is_running and scene.num_finished() < num_samples / 2:
            time.sleep(_LOOK_S)
        fault_at = time.time()
        for node in random.Random(1).sample(sorted(placed), 2):
            scene.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=benchmark")
        was_hit = command.is_running
    is_placed = set(placed.values()) == {GPUS_PER_NODE} and len(placed) == NUM_NODES
    _, is_sound = finish(scene, fault_at)
    if fails and not was_hit:
        print("  the command ended before the nodes failed: make it last longer", flush=True)
    return is_sound and is_placed and (was_hit if fails else report_balance(scene))


def run_in_turns(scene: Scene, backend: str) -> bool:
    """Run more replicas than there are GPUs; return whether nothing was lost."""
    before = requests_to_slurm(scene)
    scene.start(backend)
    cost, is_sound = finish(scene, None)
    print_requests(requests_to_slurm(scene) - before, cost.wall_s)
    return is_sound


def finish(scene: Scene, fault_at: float | None) -> tuple[Cost, bool]:
    """Wait for the command and print what it took and left; return the cost, and whether it published all once."""
    command = scene.commands[-1]
    cost = watch(command)
    print_cost(cost)
    if command.process.returncode:
        print(f"  ended with exit code {command.process.returncode}: {command.messages[-500:]}", flush=True)
        return cost, False
    return cost, report_samples(scene, fault_at)


def report_samples(scene: Scene, fault_at: float | None) -> bool:
    """Print what was lost, published twice or made again, by the run's own plan."""
    (run,) = list_runs(scene.fileroot)
    plan = run.read_plan()
    published = dict(published_samples(scene.fileroot))
    planned = {SampleKey(item.item_id, repeat) for item in plan.items for repeat in range(plan.n_samples)}
    found = audit(scene.fileroot, {key: published.get(key) for key in planned}, fault_at)
    print(
        f"  {len(planned)} samples planned: {found.num_lost} lost, {found.num_duplicated} published twice, "
        f"{found.num_extra} generated again, {found.num_late} of them although finished for 1 s",
        flush=True,
    )
    return found.is_sound


def report_balance(scene: Scene) -> bool:
    """Print how far the work of a replica is from the mean: as it was divided, and as it was done.

    A replica that starts later than others leaves work to them, which is no fault of the division.
    """
    (run,) = list_runs(scene.fileroot)
    folders = [run.replica_dir(1, replica) for replica in range(NUM_GPUS)]
    given = [pq.read_metadata(folder / "work.parquet").num_rows for folder in folders]
    records = [list(read_journal(folder)) for folder in folders]
    made = [len(each) for each in records]
    ends = [max(record.finished_at for record in each) for each in records if each]
    began = min(record.finished_at - record.latency_s for each in records for record in each)
    print(
        f"  farthest from the mean: {_spread(given):.1%} of samples as divided, {_spread(made):.1%} as made; the first "
        f"replica ran dry at {(min(ends) - began) / (max(ends) - began):.0%} of the generation",
        flush=True,
    )
    return _spread(given) <= BALANCE


def _spread(counts: Sequence[int]) -> float:
    mean = sum(counts) / len(counts)
    return max(abs(count - mean) for count in counts) / mean


def measure(options: argparse.Namespace, folder: Path, cluster: DevCluster, environment: dict[str, str]) -> bool:
    """Do what was asked for; return whether every bound holds."""
    backend = options.backend or BACKENDS[options.what]
    num_replicas = parse_backend(backend).data_parallel
    is_large = options.what == "controller"
    world = World(
        environment=environment | {"SLURM_CONF": str(cluster.paths.slurm_conf)},
        checkpoint=options.checkpoint.absolute(),
        engine_python=options.engine_python.absolute(),
        cluster=cluster,
        num_items=num_replicas * (1 if is_large else 10),
        step_s=0.0 if is_large else 0.2,
    )
    scene = Scene(
        world=world,
        folder=folder,
        rng=random.Random(1),
        # a number of nodes would be a limit: what does not fit at once waits in the queue
        overrides=["scheduler.slurm.memory=400M", "rollout.setup_timeout=900"]
        + ([] if is_large else [f"cluster.n_nodes={NUM_NODES}"]),
        pace=Pace(0.0, 0.0, 0),
    )
    print(f"{backend}, {world.num_items * N_SAMPLES} samples", flush=True)
    try:
        if is_large:
            return run_in_turns(scene, backend)
        return run_all_at_once(scene, backend, fails=options.what == "failures")
    finally:
        scene.end()


def main() -> int:
    """Do one of the three on a cluster that is brought up for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=BACKENDS)
    parser.add_argument("--backend", help="rollout.backend; default: as above")
    parser.add_argument("--checkpoint", type=Path, default=ROOT / ".demo" / "smollm2-135m-instruct")
    parser.add_argument("--engine-python", type=Path, default=ROOT / ".venv-engine" / "bin" / "python")
    parser.add_argument("--keep", type=Path, help="folder for all files, empty or new; default: removed at the end")
    options = parser.parse_args()
    end_on_signals()
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
