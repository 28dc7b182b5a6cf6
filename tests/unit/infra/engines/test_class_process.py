"""The comparison runs in the engine's Python, once per names and shapes; here that Python has no transformers' classes.

What it finds where they are: tests/integration/test_engines.py.
"""

import sys
from pathlib import Path
from typing import Final

import pytest

from infra.checkpoints import inspect_checkpoint
from infra.engines.class_process import EngineEnvironment, find_cached, start_comparison, wait_for_comparison
from schemas.checkpoint import CheckpointReport
from tests.support.checkpoint_folders import make_adapter, make_base, make_checkpoint

OWN: Final = EngineEnvironment(Path(sys.executable), {"transformers": "5.0.0"})


@pytest.fixture
def report(tmp_path: Path) -> CheckpointReport:
    return inspect_checkpoint(make_checkpoint(tmp_path / "checkpoint", num_shards=2))


def test_a_result_is_kept_for_the_same_names_and_shapes(tmp_path: Path, report: CheckpointReport) -> None:
    cache = tmp_path / "out" / "cache"
    assert start_comparison(report, OWN, cache) is None
    made = wait_for_comparison(report, OWN, cache)
    assert "Error" in made.skipped  # the controller's environment has no torch
    (kept,) = cache.glob("*.json")
    no_python = OWN._replace(python=tmp_path / "no-python")
    assert wait_for_comparison(report, no_python, cache) == made
    # the next checkpoint of the training run: other numbers, the same names and shapes
    later = inspect_checkpoint(make_checkpoint(tmp_path / "checkpoint-2", num_shards=2, fill=1))
    assert wait_for_comparison(later, no_python, cache) == made
    assert list(cache.glob("*.json")) == [kept]


def test_what_decides_the_result_has_a_result_of_its_own(tmp_path: Path, report: CheckpointReport) -> None:
    wait_for_comparison(report, OWN, tmp_path)
    other_names = inspect_checkpoint(make_checkpoint(tmp_path / "checkpoint-2", num_shards=3))
    other_config = inspect_checkpoint(make_checkpoint(tmp_path / "checkpoint-3", num_shards=2))
    (other_config.path / "config.json").write_text('{"architectures": ["Qwen2ForCausalLM"]}')
    no_python = OWN._replace(python=tmp_path / "no-python")
    other_version = no_python._replace(packages={"transformers": "5.1.0"})
    for changed, environment in ((other_names, no_python), (other_config, no_python), (report, other_version)):
        assert "gave no result" in wait_for_comparison(changed, environment, tmp_path).skipped
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_an_environment_without_transformers_is_not_started(tmp_path: Path, report: CheckpointReport) -> None:
    cache = tmp_path / "cache"
    bare = EngineEnvironment(Path(sys.executable), {})
    assert start_comparison(report, bare, cache) is None
    assert "no transformers" in wait_for_comparison(report, bare, cache).skipped
    assert not cache.exists()


def test_of_an_adapter_its_base_is_compared_and_pickle_weights_are_not(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    adapter = inspect_checkpoint(make_adapter(tmp_path / "checkpoint-2", base))
    assert find_cached(adapter, OWN, tmp_path) == find_cached(inspect_checkpoint(base), OWN, tmp_path) is not None
    pickled = inspect_checkpoint(base).model_copy(update={"weight_files": (base / "pytorch_model.bin",)})
    assert find_cached(pickled, OWN, tmp_path) is None
