"""The CPU cache is as large as the batch needs and never larger than its share."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.engines.cache_size import kv_cache_bytes
from schemas.errors import EngineError
from schemas.inference import EngineSpec

SHAPE = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576}
TOKEN_BYTES = 2 * 30 * 3 * 64 * 2
"""Measured: vLLM gives 46,592 tokens for 1 GiB in bfloat16."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(SHAPE | {"dtype": "bfloat16", "vocab_size": 49152}))
    (folder / "model.safetensors").write_bytes(b"\0" * 1000)
    return folder


def spec(model: Path, **changes: object) -> EngineSpec:
    base = EngineSpec(engine="vllm", model_path=model, dtype="auto", max_model_len=1024, batch_size=32, seed=0)
    return base.model_copy(update=changes)


def test_the_size_of_a_token_is_that_of_vllm() -> None:
    assert (1 << 30) // TOKEN_BYTES // 128 * 128 == 46_592


def test_a_batch_of_full_length_fits_and_one_sequence_more(model: Path) -> None:
    size = kv_cache_bytes(spec(model), available=100 << 30)
    assert size.one_sequence == (1024 + 128) * TOKEN_BYTES
    assert size.granted == 33 * size.one_sequence
    assert size.weights == 1000


def test_float32_doubles_the_cache(model: Path) -> None:
    half = kv_cache_bytes(spec(model), available=100 << 30)
    full = kv_cache_bytes(spec(model, dtype="float32"), available=100 << 30)
    assert full.granted == 2 * half.granted


@given(batch_size=st.integers(1, 4096), length=st.integers(1, 10**6), ratio=st.floats(0.01, 1.0))
def test_never_more_than_the_share_of_what_is_free(model: Path, batch_size: int, length: int, ratio: float) -> None:
    free = 16 << 30
    size = kv_cache_bytes(spec(model, batch_size=batch_size, max_model_len=length, memory_ratio=ratio), free)
    assert size.granted + size.weights <= free * ratio


@pytest.mark.parametrize("content", ["{}", "[]", "not json", '{"num_hidden_layers": 2}'])
def test_a_config_without_shape_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(EngineError, match=r"config\.json"):
        kv_cache_bytes(spec(tmp_path), available=1 << 30)


def test_the_language_model_inside_a_multimodal_config_is_found(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": SHAPE, "vision_config": {}}))
    assert kv_cache_bytes(spec(tmp_path), available=100 << 30).one_sequence == (1024 + 128) * TOKEN_BYTES
