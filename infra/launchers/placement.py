"""Which devices and cores each replica gets on this machine. Nothing is given twice."""

import os
from collections.abc import Sequence

from infra.jobs.base import Placement
from infra.machine.gpus import Device, visible_gpus
from schemas.errors import SetupError


def engine_threads(placement: Placement, device: Device) -> int | None:
    """Return the CPU threads of a replica that computes on CPUs; None where the engine may decide."""
    return placement.num_cpus if device == "cpu" else None


def plan_placement(
    num_replicas: int,
    gpus_per_replica: int,
    device: Device,
    *,
    gpu_ids: Sequence[str] | None = None,
    cpu_ids: Sequence[int] | None = None,
) -> tuple[Placement, ...]:
    """Divide this machine among `num_replicas`: whole GPUs, else whole cores, each to one replica.

    `gpu_ids` and `cpu_ids` default to what this process may use. Cores that do not divide evenly stay with the first
    replicas; a single replica is not pinned.

    Raises:
        SetupError: there are fewer devices than the replicas need, with the numbers.
    """
    cores = sorted(os.sched_getaffinity(0)) if cpu_ids is None else list(cpu_ids)
    if device == "cpu":
        return _divide_cores(num_replicas, gpus_per_replica, cores)
    gpus = list(visible_gpus() if gpu_ids is None else gpu_ids)
    needed = num_replicas * gpus_per_replica
    if needed > len(gpus):
        fit = len(gpus) // gpus_per_replica
        raise SetupError(
            f"{num_replicas} replicas x {gpus_per_replica} GPUs need {needed} GPUs and this machine offers {len(gpus)} "
            f"({', '.join(gpus) or 'none'}): use d{max(1, fit)} in rollout.backend"
            + ("" if fit else " with fewer GPUs per replica (t, p)")
            + ", or widen CUDA_VISIBLE_DEVICES"
        )
    return tuple(
        Placement(
            num_gpus=gpus_per_replica,
            num_cpus=max(1, len(cores) // num_replicas),
            gpu_ids=tuple(gpus[replica * gpus_per_replica : (replica + 1) * gpus_per_replica]),
        )
        for replica in range(num_replicas)
    )


def _divide_cores(num_replicas: int, gpus_per_replica: int, cores: Sequence[int]) -> tuple[Placement, ...]:
    if gpus_per_replica > 1:
        raise SetupError(
            f"a replica of {gpus_per_replica} GPUs (t x p) was asked for and this machine is used by its CPU: "
            "use t1p1 in rollout.backend"
        )
    if num_replicas > len(cores):
        raise SetupError(
            f"{num_replicas} replicas need {num_replicas} CPU cores and this process may use {len(cores)}: "
            f"use at most d{len(cores)} in rollout.backend"
        )
    share, extra = divmod(len(cores), num_replicas)
    placements: list[Placement] = []
    start = 0
    for replica in range(num_replicas):
        size = share + (replica < extra)
        own = tuple(cores[start : start + size]) if num_replicas > 1 else ()
        placements.append(Placement(num_gpus=0, num_cpus=size, cpu_ids=own))
        start += size
    return tuple(placements)
