"""Classes that write no text, or that an engine does not load, are refused by name; those that do are left alone."""

from typing import Any

import pytest

from infra.checkpoints.architecture import check_engine_loads, check_writes_text
from schemas.inference import EngineName


@pytest.mark.parametrize(
    "name",
    ["LlamaForCausalLM", "GPT2LMHeadModel", "ChatGLMModel", "InternVLChatModel", "Qwen2_5_VLForConditionalGeneration",
     "Gemma3ForConditionalGeneration", "MiniCPMV", "RWForCausalLM", "OpenAIGPTLMHeadModel", "LlavaQwenForCausalLM"],
)  # fmt: skip
def test_classes_with_a_head_are_accepted(name: str) -> None:
    assert check_writes_text({"architectures": [name]}) is None


@pytest.mark.parametrize(
    "name",
    ["LlamaForSequenceClassification", "Qwen2ForTokenClassification", "BertForMaskedLM", "Qwen3Model", "BertModel",
     "InternLM2ForRewardModel", "Qwen2ForProcessRewardModel", "LlamaForQuestionAnswering", "GPT2Model",
     "AutoModelForCausalLMWithValueHead"],
)  # fmt: skip
def test_classes_without_a_head_are_named(name: str) -> None:
    problem = check_writes_text({"architectures": [name]})
    assert problem is not None
    assert f"{name} has no language-model head" in problem
    assert "ForCausalLM" in problem


def test_an_encoder_decoder_is_named() -> None:
    problem = check_writes_text({"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True})
    assert problem is not None
    assert "T5ForConditionalGeneration is an encoder-decoder" in problem


OWN_CODE = {"architectures": ["OursForCausalLM"], "model_type": "ours", "auto_map": {"AutoConfig": "ours.OursConfig"}}
LLAVA = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "vision_config": {}}


@pytest.mark.parametrize(
    ("config", "engine", "trusts", "expected"),
    [
        (OWN_CODE, "vllm", False, "engine.trust_remote_code=true"),
        (OWN_CODE, "transformers", False, "engine.trust_remote_code=true"),
        (OWN_CODE, "vllm", True, None),
        (OWN_CODE, "transformers", True, None),
        (OWN_CODE, "stand_in", False, None),
        ({**OWN_CODE, "model_type": "phi3"}, "vllm", False, None),
        ({**OWN_CODE, "model_type": ["phi3"]}, "vllm", False, "no model_type ['phi3']"),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "transformers", False, None),
        ({"architectures": ["BrandNewForCausalLM"], "model_type": "brand_new"}, "vllm", False, None),
        (LLAVA, "transformers", False, "LlavaForConditionalGeneration (model_type 'llava')"),
        (LLAVA, "vllm", False, None),
        ({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"}, "transformers", False, None),
    ],
)
def test_what_an_engine_does_not_load_is_named(
    config: dict[str, Any], engine: EngineName, trusts: bool, expected: str | None
) -> None:
    problem = check_engine_loads(config, engine, trust_remote_code=trusts)
    assert problem is None if expected is None else problem is not None and expected in problem
