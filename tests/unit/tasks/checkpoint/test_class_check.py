"""A checkpoint whose weights are not those of its class is refused before anything is launched."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.class_comparison import ClassComparison
from infra.engines.class_process import EngineEnvironment, find_cached
from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from schemas.errors import CheckpointError
from tasks.checkpoint.class_check import check_class, start_class_check
from tests.support.checkpoint_folders import make_checkpoint

ENGINE: Final = EngineEnvironment(Path("no-python"), {"transformers": "5.0.0"})


def _config(tmp_path: Path, backend: str) -> EvaluationConfig:
    return EvaluationConfig.model_validate(
        {
            "actor": {"path": str(make_checkpoint(tmp_path / "checkpoint"))},
            "cluster": {"fileroot": str(tmp_path / "out")},
            "rollout": {"backend": backend},
            "valid_dataset": {"path": "reasoning_gym:chain_sum"},
        }
    )


@pytest.mark.parametrize("check", [start_class_check, check_class])
def test_a_known_difference_is_refused(
    tmp_path: Path, check: Callable[[EvaluationConfig, CheckpointReport, EngineEnvironment], None]
) -> None:
    config = _config(tmp_path, "vllm:d1")
    report = inspect_checkpoint(tmp_path / "checkpoint")
    found = ClassComparison(model_class="LlamaForCausalLM", missing=("model.layers.0.self_attn.q_proj.weight",))
    path = find_cached(report, ENGINE, tmp_path / "out/cache/class_comparisons")
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_text(found.model_dump_json())
    with pytest.raises(CheckpointError, match=r"missing: model\.layers\.0\.self_attn\.q_proj\.weight") as caught:
        check(config, report, ENGINE)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("backend", ["vllm:d1", "transformers:d1", "openai:d1"])
def test_without_a_comparison_the_engine_decides(tmp_path: Path, backend: str) -> None:
    config = _config(tmp_path, backend)
    report = inspect_checkpoint(tmp_path / "checkpoint")
    start_class_check(config, report, ENGINE)
    check_class(config, report, ENGINE)
