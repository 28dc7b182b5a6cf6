"""What follows from the names in which a checkpoint differs from its class, by engine."""

import pytest

from infra.checkpoints.class_comparison import ClassComparison, find_class_problem
from schemas.inference import EngineName

Q = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("differences", "engine", "expected"),
    [
        ({}, "vllm", None),
        ({}, "transformers", None),
        ({"skipped": "ValueError: no class"}, "vllm", None),
        ({"missing": (f"{Q}.weight",)}, "vllm", f"missing: {Q}.weight"),
        ({"missing": (f"{Q}.weight",)}, "transformers", f"missing: {Q}.weight"),
        ({"unexpected": (f"{Q}.bias",)}, "vllm", f"unexpected: {Q}.bias"),
        ({"mismatched": (f"{Q}.weight ([8, 4], L has [4, 4])",)}, "vllm", "of another shape: "),
        ({"missing": (f"{Q}.weight",), "mismatched": ("a",)}, "vllm", f"missing: {Q}.weight; of another shape: a"),
        # vLLM may know a layout that transformers does not
        ({"missing": (f"{Q}.weight",), "unexpected": ("layers.0.wqkv",)}, "vllm", None),
        ({"missing": (f"{Q}.weight",), "unexpected": ("layers.0.wqkv",)}, "transformers", "unexpected: layers.0.wqkv"),
        # vLLM does not need what no text depends on; transformers fills it with random numbers
        ({"missing": ("visual.blocks.0.norm.weight",)}, "vllm", None),
        ({"missing": ("visual.blocks.0.norm.weight",)}, "transformers", "missing: visual.blocks.0.norm.weight"),
        ({"missing": tuple(f"layers.{n}.w" for n in range(9))}, "vllm", "layers.2.w and 6 more"),
    ],
)  # fmt: skip
def test_only_what_an_engine_would_not_load_as_saved_is_a_problem(
    differences: dict[str, object], engine: EngineName, expected: str | None
) -> None:
    comparison = ClassComparison.model_validate({"model_class": "LlamaForCausalLM", **differences})
    problem = find_class_problem(comparison, engine)
    assert (problem is None) == (expected is None), problem
    assert expected is None or expected in str(problem)
