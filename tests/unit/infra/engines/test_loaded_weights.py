"""What transformers reports of loading becomes an error that names the tensors, or nothing where the model is whole."""

from pathlib import Path
from typing import Any

import pytest

from infra.engines.loaded_weights import check_loading_report
from schemas.errors import EngineError

WHOLE: dict[str, Any] = {"missing_keys": set(), "unexpected_keys": set(), "mismatched_keys": set()}
Q = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    "unexpected",
    [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "transformer.rotary_pos_emb.inv_freq",
        "h.0.attn.masked_bias",
        "transformer.h.0.attn.bias",
        "transformer.h.11.attn.attention.masked_bias",
        "transformer.h.0.attn.causal_mask",
        "model.embed_positions.weights",
        "model.layers.61.eh_proj.weight",
        "mtp.layers.0.mlp.up_proj.weight",
        "vision_tower.encoder.layers.0.mlp.fc1.weight",
        "model.layers.3.self_attn.k_scale",
    ],
)
def test_tensors_that_no_text_depends_on_may_be_left_out(unexpected: str) -> None:
    check_loading_report(WHOLE, "LlamaForCausalLM", Path("c"))
    check_loading_report({**WHOLE, "unexpected_keys": {unexpected}}, "LlamaForCausalLM", Path("c"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"missing_keys": {f"{Q}.weight"}}, f"missing: {Q}.weight"),
        ({"unexpected_keys": {f"{Q}.bias"}}, f"unexpected: {Q}.bias"),
        ({"unexpected_keys": {"h.0.attn.c_attn.bias"}}, "unexpected: h.0.attn.c_attn.bias"),
        ({"unexpected_keys": {"h.0.attn.attention.q_proj.bias"}}, "unexpected: h.0.attn.attention.q_proj.bias"),
        ({"unexpected_keys": {"model.embed_positions.weight"}}, "unexpected: model.embed_positions.weight"),
        ({"mismatched_keys": {(f"{Q}.weight", (8, 4), (4, 4))}}, f"{Q}.weight ([8, 4], LlamaForCausalLM has [4, 4])"),
        ({"missing_keys": {f"model.layers.{n}.w" for n in range(9)}}, "model.layers.2.w and 6 more"),
    ],
)
def test_what_is_not_the_classs_is_named(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(EngineError) as caught:
        check_loading_report({**WHOLE, **changes}, "LlamaForCausalLM", Path("c"))
    assert expected in str(caught.value)
