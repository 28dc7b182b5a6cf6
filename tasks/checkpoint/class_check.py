"""Check that a checkpoint has the weights that the model's class asks for, before a worker is launched."""

import logging
from pathlib import Path
from typing import Final

from infra.checkpoints.class_comparison import ClassComparison, find_class_problem
from infra.engines.class_process import EngineEnvironment, start_comparison, wait_for_comparison
from infra.tokenizer.files import read_json_object
from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from schemas.errors import CheckpointError

_CACHE: Final = "cache/class_comparisons"

logger = logging.getLogger(__name__)


def start_class_check(config: EvaluationConfig, report: CheckpointReport, environment: EngineEnvironment) -> None:
    """Start what `check_class` waits for, as it takes seconds.

    Raises:
        CheckpointError: as `check_class`, where it is known already.
    """
    known = start_comparison(report, environment, _cache(config)) if _applies(config, report) else None
    if known is not None:
        _raise_problem(config, known)


def check_class(config: EvaluationConfig, report: CheckpointReport, environment: EngineEnvironment) -> None:
    """Compare the tensors' names and shapes with the class of the model in the engine environment.

    Where that has no such class, or is on other machines only, the engine's own checks while it loads remain.

    Raises:
        CheckpointError: tensors are missing, unexpected or of another shape, named.
    """
    if not _applies(config, report):
        return
    comparison = wait_for_comparison(report, environment, _cache(config))
    if comparison.skipped:
        logger.debug("weights not compared with transformers' class before launch: %s", comparison.skipped)
    _raise_problem(config, comparison)


def _raise_problem(config: EvaluationConfig, comparison: ClassComparison) -> None:
    problem = find_class_problem(comparison, config.engine_name)
    if problem is not None:
        raise CheckpointError(f"the checkpoint {config.actor.path} cannot be evaluated:\n  - {problem}")


def _applies(config: EvaluationConfig, report: CheckpointReport) -> bool:
    if config.engine_name not in ("vllm", "transformers"):
        return False
    folder = report.path if report.adapter is None else report.adapter.base_folder
    runs_code = config.engine.trust_remote_code and "auto_map" in read_json_object(folder / "config.json")
    return not runs_code  # the checkpoint's own class may have other names


def _cache(config: EvaluationConfig) -> Path:
    return config.cluster.folder / _CACHE
