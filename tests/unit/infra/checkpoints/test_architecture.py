"""Classes that write no text, or that an engine does not load, are refused by name; those that do are left alone."""

from typing import Any

import pytest

from infra.checkpoints.architecture import (
    check_engine_loads,
    check_tokenizer_loads,
    check_writes_text,
    find_media_tokens,
)
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


CODE = {"AutoTokenizer": ["tokenization_ours.OursTokenizer", None]}


@pytest.mark.parametrize(
    ("tokenizer", "model_type", "engine", "trusts", "is_refused"),
    [
        ({"auto_map": CODE, "tokenizer_class": "OursTokenizer"}, "ours", "vllm", False, True),
        ({"auto_map": CODE, "tokenizer_class": "OursTokenizer"}, "ours", "transformers", False, True),
        ({"auto_map": CODE["AutoTokenizer"], "tokenizer_class": "OursTokenizer"}, "ours", "vllm", False, True),
        ({"auto_map": CODE}, "ours", "vllm", False, True),
        ({"auto_map": CODE, "tokenizer_class": "OursTokenizer"}, "ours", "vllm", True, False),
        ({"auto_map": CODE, "tokenizer_class": "OursTokenizer"}, "ours", "stand_in", False, False),
        ({"auto_map": CODE, "tokenizer_class": "OursTokenizer"}, "qwen2", "vllm", False, False),
        ({"auto_map": CODE, "tokenizer_class": "PreTrainedTokenizerFast"}, "ours", "vllm", False, False),
        ({"auto_map": CODE, "tokenizer_class": "GPT2Tokenizer"}, "ours", "vllm", False, False),
        ({"auto_map": {"AutoProcessor": "ours.OursProcessor"}}, "ours", "vllm", False, False),
        ({"tokenizer_class": "OursTokenizer"}, "ours", "vllm", False, False),
        ({}, "ours", "vllm", False, False),
    ],
)
def test_a_tokenizer_of_the_checkpoints_own_code_is_named(
    tokenizer: dict[str, Any], model_type: str, engine: EngineName, trusts: bool, is_refused: bool
) -> None:
    problem = check_tokenizer_loads(tokenizer, {"model_type": model_type}, engine, trust_remote_code=trusts)
    assert (problem is not None) == is_refused
    assert problem is None or "tokenizer_config.json: auto_map" in problem


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"architectures": ["LlamaForCausalLM"], "image_token_id": 3}, None),
        (LLAVA, ()),
        ({**LLAVA, "image_token_index": 32000}, (32000,)),
        ({**LLAVA, "image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 4, "pad_token_id": 1}, (4, 5, 6)),
        ({**LLAVA, "image_token_id": None, "audio_token_id": -1, "image_token": "<image>"}, ()),
    ],
)
def test_tokens_of_images_and_sounds_are_found(config: dict[str, Any], expected: tuple[int, ...] | None) -> None:
    assert find_media_tokens(config) == expected
