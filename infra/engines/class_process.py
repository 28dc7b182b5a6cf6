"""The comparison of a checkpoint with its class, in a short process of the engine environment.

Owns the process and the file that remembers its result: it takes seconds of CPU, and all checkpoints of a training run
have the same names and shapes. Must not decide what follows from the result.
"""

import atexit
import hashlib
import json
import logging
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from infra.checkpoints.class_comparison import ClassComparison
from infra.checkpoints.model_config import digest_model_config
from infra.checkpoints.safetensors_header import read_header
from infra.files.atomic import make_folder, write_text_atomically
from infra.jobs.environment import clean_environment
from infra.machine.engine_environment import CHECKOUT, find_checkout, make_import_root
from schemas.checkpoint import CheckpointReport
from schemas.errors import StoreError

_PROGRAM: Final = "infra.engines.loaded_weights"
_VERSION: Final = 1
"""Number of the rules by which the comparison is made; another one leaves older results unread."""
_PATIENCE_S: Final = 180.0
"""Longest wait for the process: 19,000 tensors of a mixture take 3 s, and the import 5 s on one core."""

logger = logging.getLogger(__name__)
_running: Final[dict[Path, subprocess.Popen[str]]] = {}
"""Processes started and not yet waited for, by the file of their result."""


class EngineEnvironment(NamedTuple):
    """The environment that has transformers' classes."""

    python: Path
    """Interpreter of the environment."""
    packages: Mapping[str, str]
    """Version by package; without transformers nothing is compared."""


def start_comparison(report: CheckpointReport, environment: EngineEnvironment, cache: Path) -> ClassComparison | None:
    """Return what the folder `cache` knows; else start the process, for `wait_for_comparison`, and return None.

    Raises:
        CheckpointError: a header or config.json cannot be read.
    """
    path = find_cached(report, environment, cache)
    if path is None:
        return None
    known = _read(path)
    if known is None and path not in _running:
        _start(path, report, environment)
    return known


def wait_for_comparison(report: CheckpointReport, environment: EngineEnvironment, cache: Path) -> ClassComparison:
    """Return how a checkpoint differs from its class; its `skipped` says why where that is not known.

    Raises:
        CheckpointError: a header or config.json cannot be read.
    """
    path = find_cached(report, environment, cache)
    if path is None:
        return ClassComparison(skipped="there are no safetensors, or no transformers in the engine environment")
    known = start_comparison(report, environment, cache)
    if known is not None:
        return known
    made = _wait(path)
    if made is None:
        return ClassComparison(skipped=f"{environment.python} -m {_PROGRAM} gave no result")
    with suppress(StoreError):  # a cache that cannot be kept costs the next run its time, not this one its result
        write_text_atomically(path, made.model_dump_json() + "\n")
    return made


def find_cached(report: CheckpointReport, environment: EngineEnvironment, cache: Path) -> Path | None:
    """Return the file that holds the result, once there is one; None where nothing can be compared.

    Its name is a digest of all that the result depends on.

    Raises:
        CheckpointError: a header or config.json cannot be read.
    """
    files, version = _files(report), environment.packages.get("transformers")
    if version is None or not files or any(path.suffix != ".safetensors" for path in files):
        return None
    try:
        names = sorted((name, tensor.shape) for path in files for name, tensor in read_header(path).items())
    except OSError:
        return None  # whoever loads it says what is wrong
    document = [_VERSION, version, environment.packages.get("torch"), digest_model_config(report), names]
    return cache / f"{hashlib.sha256(json.dumps(document).encode()).hexdigest()[:32]}.json"


def _start(path: Path, report: CheckpointReport, environment: EngineEnvironment) -> None:
    folder = report.path if report.adapter is None else report.adapter.base_folder
    command = [str(environment.python), "-P", "-m", _PROGRAM, str(folder), *map(str, _files(report))]
    try:
        make_folder(path.parent)
        # no GPU: nothing is computed, and a process that only looks at one takes some of its memory
        own = {"PYTHONPATH": str(_import_root(path.parent)), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command,
            cwd="/",
            env=clean_environment(os.environ) | own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except (OSError, StoreError) as exc:
        logger.debug("weights not compared with transformers' class before launch: %s", exc)
        return
    _running[path] = process
    atexit.register(process.kill)


def _wait(path: Path) -> ClassComparison | None:
    process = _running.pop(path, None)
    if process is None:
        return None
    try:
        answer, _ = process.communicate(timeout=_PATIENCE_S)
        return ClassComparison.model_validate_json(answer) if process.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError):
        return None
    finally:
        process.kill()
        process.wait()
        atexit.unregister(process.kill)


def _import_root(cache: Path) -> Path:
    checkout = find_checkout()
    if checkout is not None:
        return checkout
    folder = cache / hashlib.sha256(bytes(CHECKOUT)).hexdigest()[:12]  # installations may share the cache
    make_folder(folder)
    return make_import_root(folder)


def _files(report: CheckpointReport) -> tuple[Path, ...]:
    return report.weight_files if report.adapter is None else report.adapter.base_weight_files


def _read(path: Path) -> ClassComparison | None:
    try:
        return ClassComparison.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
