"""The text of a batch script: a pure function of what is to run. Nothing that a user wrote is read by a shell.

A job is one array whose elements are the replicas. The output of Slurm itself goes to another file than the replica's:
`batch_options` names it, on the command line, where a path may hold anything.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.jobs.base import LaunchSpec, Placement
from infra.jobs.environment import DEVICE_NAMES, RANK_NAMES, SCHEDULER_PREFIXES
from schemas.errors import ConfigError
from schemas.slurm import SlurmConfig

_SCRUB: Final = " ".join(["unset -v", *RANK_NAMES, *(f"${{!{prefix}@}}" for prefix in SCHEDULER_PREFIXES)])
_START: Final = _SCRUB + '; while [ "$1" != -- ]; do export "$1"; shift; done; shift; exec "$@"'
"""Run by the bash next to the replica, inside a container where there is one."""
_OWN_VARIABLES: Final = (
    *DEVICE_NAMES,
    "MILEPOST_NODE",
    "OMP_NUM_THREADS",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "VLLM_CACHE_ROOT",
    "VLLM_PORT",
)
"""Set by Slurm or the script below, beside those of the specification and the configuration."""
_BODY: Final = """\
cd -- "$folder" || exit 1
exec >>"$log" 2>&1
# compilers of engines on one node must not write into one another's files, nor listen on one port
caches="${TMPDIR:-/tmp}/milepost+${SLURMD_NODENAME:-}+"
cache="$caches$SLURM_JOB_ID.$$"
# a job that was killed could not remove its own; its number may be looked up on its node alone
for old in "$caches"*.*; do
    if [ -O "$old" ] && [ ! -e "/proc/${old##*.}" ]; then rm -rf -- "$old"; fi
done
export VLLM_CACHE_ROOT="${VLLM_CACHE_ROOT:-$cache/vllm}"
export TORCHINDUCTOR_CACHE_DIR="${TORCHINDUCTOR_CACHE_DIR:-$cache/torchinductor}"
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-$cache/triton}"
export VLLM_PORT="${VLLM_PORT:-$((20000 + SLURM_JOB_ID % 120 * 100))}"
export MILEPOST_NODE="${SLURMD_NODENAME:-}"
# Slurm signals this shell alone at first: the replica has to hear of it, and is waited for
trap 'told=yes; kill -TERM "$replica" 2>/dev/null' TERM
"""
_END: Final = """\
replica=$!
told=yes
while [ -n "$told" ]; do
    told=
    wait "$replica"
    code=$?
done
rm -rf -- "$cache"
exit "$code"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """One array job."""

    name: str
    """Its name: the jobs of one run have the same."""
    comment: str
    """What tells this submission from every other one of the run."""
    elements: tuple[LaunchSpec, ...]
    """What each element runs; they have the same placement and nodes left out."""
    config: SlurmConfig
    """What is asked of the cluster."""


def batch_script(job: BatchJob) -> str:
    """Return the script of a job.

    Raises:
        ConfigError: a name holds a line break, which no directive can.
    """
    placement, config = job.elements[0].placement, job.config
    lines = ["#!/bin/bash"]
    lines += [_directive("job-name", job.name), _directive("comment", job.comment)]
    lines += _resources(config, placement, len(job.elements), job.elements[0].exclude_nodes)
    lines.append(_directive("open-mode", "append"))
    lines.append("#SBATCH --no-requeue")  # Milepost retries; two owners of retries would run a replica twice
    lines += [f"#SBATCH {line}" for line in config.extra]
    lines += ["", 'case "$SLURM_ARRAY_TASK_ID" in']
    for number, element in enumerate(job.elements):
        lines += [f"{number})", *_assignments(element), "    ;;"]
    lines += ["esac", ""]
    if not placement.num_gpus:
        lines.append("export CUDA_VISIBLE_DEVICES=")
    lines.append(f"export OMP_NUM_THREADS={placement.num_cpus}")
    container, settings = "", ""
    if config.container is not None:
        # since 22.05 srun takes one core whatever the job has
        lines.append('export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"')
        container = " ".join(_quoted(shlex.split(config.container))) + " "
        settings = _settings(job)
    command = f'{container}bash -c {shlex.quote(_START)} milepost {settings}-- "${{argv[@]}}" </dev/null &\n'
    return "\n".join(lines) + "\n" + _BODY + command + _END


def rehearsal_script(config: SlurmConfig, placement: Placement) -> str:
    """Return a script that asks the cluster for what a replica needs and runs nothing."""
    lines = [*_resources(config, placement, 1, ()), *(f"#SBATCH {line}" for line in config.extra)]
    return "\n".join(["#!/bin/bash", *lines]) + "\n"


def batch_options(output_folder: Path) -> list[str]:
    """Return the options of sbatch that name where the output of Slurm itself goes, one file per element.

    Slurm cannot be told of a path with a backslash: there its words are lost. The job starts in a folder that every
    node has, and changes into its own by itself.
    """
    if "\\" in str(output_folder):
        return ["--chdir=/", "--output=/dev/null"]
    return ["--chdir=/", "--output=" + str(output_folder).replace("%", "%%") + "/slurm-%A_%a.out"]


def quote_directive(value: str) -> str:
    """Return a value as sbatch reads it in a directive: in quotes, with a backslash before each quote and backslash.

    Raises:
        ConfigError: it holds a line break or NUL.
    """
    if any(letter in value for letter in "\n\r\0"):
        raise ConfigError(f"{value!r} cannot be given to sbatch: it holds a line break; write it on one line")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _resources(config: SlurmConfig, placement: Placement, count: int, exclude_nodes: Sequence[str]) -> list[str]:
    excluded = (*config.exclude_nodes, *exclude_nodes)
    wanted = [
        ("array", f"0-{count - 1}"),
        ("nodes", "1"),
        ("ntasks", "1"),
        ("cpus-per-task", str(placement.num_cpus)),
        ("gres", f"gpu:{placement.num_gpus}" if placement.num_gpus else None),
        ("mem", config.memory),
        ("partition", config.partition),
        ("account", config.account),
        ("qos", config.qos),
        ("time", config.time),
        ("constraint", config.constraint),
        ("reservation", config.reservation),
        ("exclude", ",".join(excluded) or None),
    ]
    return [_directive(name, value) for name, value in wanted if value is not None]


def _directive(name: str, value: str) -> str:
    return f"#SBATCH --{name}={quote_directive(value)}"


def _assignments(element: LaunchSpec) -> list[str]:
    exports = [f"    export {name}={shlex.quote(value)}" for name, value in sorted(element.env.items())]
    return [
        f"    folder={shlex.quote(str(element.cwd))}",
        f"    log={shlex.quote(str(element.log_path))}",
        f"    argv=({' '.join(_quoted(element.argv))})",
        *exports,
    ]


def _settings(job: BatchJob) -> str:
    """Return words of bash that give the variables which a replica needs to the bash inside a container.

    Both Apptainer and Pyxis let what an image sets win over what the job has.
    """
    names = {*_OWN_VARIABLES, *job.config.env}.union(*(element.env for element in job.elements))
    return "".join(f'${{{name}+"{name}=${name}"}} ' for name in sorted(names))


def _quoted(words: Sequence[str]) -> list[str]:
    return [shlex.quote(word) for word in words]
