"""The environment of a worker: this process's own without what belongs to it alone."""

import os
from collections.abc import Mapping
from typing import Final

from infra.jobs.base import Placement

SCHEDULER_PREFIXES: Final = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "PMI_", "PMIX_", "OMPI_")
"""Written by a scheduler or MPI for the process that it started: an engine that finds them believes that it is a rank
of that job."""
RANK_NAMES: Final = (
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""Written by torchrun, and by containers made for it, to the same effect."""
DEVICE_NAMES: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Which devices a process may use."""
_QUERY_PREFIXES: Final = ("SQUEUE_", "SINFO_", "SCANCEL_", "SACCT_", "SCONTROL_", "SALLOC_", "SPRIO_", "SSHARE_")
"""Options of Slurm's commands from a login file: they hide jobs and nodes from our own questions."""
_FOREIGN_PREFIXES: Final = (*SCHEDULER_PREFIXES, *_QUERY_PREFIXES, "TORCHELASTIC_", "PREFECT_")
"""Those of torchrun and Prefect too; Prefect's may hold credentials."""
_FOREIGN_NAMES: Final = frozenset(
    {
        *RANK_NAMES,
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "VIRTUAL_ENV",
        "VIRTUAL_ENV_PROMPT",
        "CONDA_PREFIX",
        "CONDA_DEFAULT_ENV",
        "__PYVENV_LAUNCHER__",
    }
)
"""The ranks, and what would make the engine's Python look for packages in this one's environment."""


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without the variables that describe this process's own job or interpreter."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _FOREIGN_NAMES and not name.startswith(_FOREIGN_PREFIXES)
    }


def job_environment(env: Mapping[str, str], placement: Placement) -> dict[str, str]:
    """Return the environment of a process that this one starts: its own, clean, with `env`, devices and cores."""
    share = {"CUDA_VISIBLE_DEVICES": ",".join(placement.gpu_ids), "OMP_NUM_THREADS": str(placement.num_cpus)}
    return clean_environment(os.environ) | dict(env) | share
