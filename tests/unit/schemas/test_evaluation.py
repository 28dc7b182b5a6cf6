"""The configuration model itself: what evaluation draws with, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.config import EvaluationConfig, check_launchable
from schemas.errors import ConfigError
from schemas.sampling import GenerationConfig, GenerationOverrides


def make(**sections: object) -> EvaluationConfig:
    return EvaluationConfig.model_validate(
        {"actor": {"path": "ckpt"}, "valid_dataset": {"path": "d.jsonl"}, **sections}
    )


def test_without_eval_gconfig_evaluation_draws_as_training_does() -> None:
    config = make(gconfig={"n_samples": 4, "temperature": 0.7})
    assert config.generation == config.gconfig


def test_eval_gconfig_wins_key_by_key() -> None:
    config = make(
        gconfig={"n_samples": 16, "temperature": 1.0, "max_new_tokens": 99, "stop": ["a"]},
        eval_gconfig={"n_samples": 4, "temperature": 0.6, "stop": []},
    )
    assert config.generation == GenerationConfig(n_samples=4, temperature=0.6, max_new_tokens=99)


def test_greedy_is_temperature_zero() -> None:
    generation = make(gconfig={"greedy": True}).generation
    assert (generation.temperature, generation.greedy) == (0.0, True)
    assert make(gconfig={"temperature": 0}).generation.greedy


def test_greedy_evaluation_of_a_sampling_config_takes_one_completion() -> None:
    assert make(gconfig={"n_samples": 8}, eval_gconfig={"greedy": True}).generation.n_samples == 1
    assert make(gconfig={"n_samples": 8}, eval_gconfig={"temperature": 0}).generation.n_samples == 1


def test_a_temperature_for_evaluation_turns_greedy_training_into_sampling() -> None:
    generation = make(gconfig={"greedy": True}, eval_gconfig={"temperature": 0.6, "n_samples": 4}).generation
    assert (generation.temperature, generation.greedy, generation.n_samples) == (0.6, False, 4)


@pytest.mark.parametrize(
    "sections",
    [
        {"gconfig": {"greedy": True, "n_samples": 2}},
        {"gconfig": {"temperature": 0, "n_samples": 2}},
        {"eval_gconfig": {"greedy": True, "n_samples": 2}},
    ],
)
def test_copies_of_one_greedy_completion_are_refused(sections: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"n_samples is 2 but generation is greedy.*n_samples=1"):
        make(**sections)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("gconfig", "n_samples", 0),
        ("gconfig", "n_samples", True),
        ("gconfig", "temperature", -1),
        ("gconfig", "temperature", float("nan")),
        ("gconfig", "top_p", 0),
        ("gconfig", "top_p", 1.01),
        ("gconfig", "top_p", float("nan")),
        ("gconfig", "top_k", 0),
        ("gconfig", "top_k", -2),
        ("gconfig", "max_new_tokens", 0),
        ("gconfig", "min_new_tokens", 1025),
        ("gconfig", "stop", [""]),
        ("eval_gconfig", "min_new_tokens", 1025),
        ("eval_gconfig", "top_k", 0),
        ("eval_gconfig", "stop", ["x", ""]),
        ("rollout", "backend", "vllm:d0"),
        ("rollout", "max_concurrent_rollouts", 0),
        ("rollout", "setup_timeout", 0),
        ("scheduler", "type", "kubernetes"),
        ("cluster", "n_nodes", 0),
        ("cluster", "fileroot", ""),
        ("engine", "memory_ratio", 1.5),
        ("evaluator", "freq_steps", 0),
        ("metrics", "pass_at_k", [1, 0]),
        ("gconfig", "temprature", 1),
    ],
)
def test_a_value_out_of_range_is_refused(section: str, key: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        make(**{section: {key: value}})
    assert section in str(caught.value)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a b", "é", "-x", "a" * 129, "a\n"])
def test_a_name_that_is_no_folder_name_is_refused(name: str) -> None:
    for key in ("experiment_name", "trial_name"):
        with pytest.raises(ValidationError, match="names a folder"):
            make(**{key: name})


def test_names_of_training_configs_are_accepted() -> None:
    for name in ("gsm8k-grpo", "trial0", "2024-01-01", "a.b_c", "7"):
        assert make(experiment_name=name).experiment_name == name


def test_training_workflows_and_rewards_are_understood() -> None:
    config = make(workflow="areal.workflow.rlvr.RLVRWorkflow", reward_fn="areal.reward.gsm8k.gsm8k_reward_fn")
    assert (config.workflow, config.reward_fn) == ("single_turn", "math")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("workflow", "areal.workflow.vision_rlvr.VisionRLVRWorkflow"),
        ("workflow", "x.MultiturnRLVRWorkflow"),
        ("eval_workflow", "areal.workflow.openai.math_agent.MathAgent"),
        ("reward_fn", "maths"),
        ("reward_fn", "package.function()"),
        ("reward_fn", "package..function"),
        ("reward_fn", "package.function; import os"),
    ],
)
def test_other_workflows_and_rewards_are_refused(key: str, value: str) -> None:
    with pytest.raises(ValidationError, match=key):
        make(**{key: value})


def test_a_config_cannot_be_changed() -> None:
    config = make()
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 2  # pyright: ignore[reportAttributeAccessIssue] - that is the point


def test_a_form_can_be_made_of_it() -> None:
    schema = EvaluationConfig.model_json_schema()
    assert set(schema["required"]) == {"actor", "valid_dataset"}
    assert all("description" in field or "$ref" in field for field in schema["properties"].values())
    config = make(gconfig={"stop": ["a"]}, eval_gconfig={"n_samples": 2})
    assert EvaluationConfig.model_validate_json(config.model_dump_json()) == config


def test_the_engine_section_is_read_through() -> None:
    sections: dict[str, object] = {
        "vllm": {"max_model_len": 10, "gpu_memory_utilization": 0.5},
        "sglang": {"context_length": 20, "mem_fraction_static": 0.6},
    }
    vllm = make(**sections)
    sglang = make(rollout={"backend": "sglang:d1"}, **sections)
    assert (vllm.max_model_len, vllm.memory_ratio) == (10, 0.5)
    assert (sglang.max_model_len, sglang.memory_ratio) == (20, 0.6)
    assert make(engine={"memory_ratio": 0.3}, **sections).memory_ratio == 0.3
    assert make(rollout={"backend": "transformers:d1"}, **sections).memory_ratio is None


def test_what_this_version_launches() -> None:
    check_launchable(make())
    check_launchable(make(rollout={"backend": "transformers:d2"}, scheduler={"type": None}))


def test_what_this_version_cannot_launch_is_named_with_the_override_that_works() -> None:
    config = make(rollout={"backend": "sglang[r]:d4p1t2"}, scheduler={"type": "ray"})
    with pytest.raises(ConfigError) as caught:
        check_launchable(config)
    assert "scheduler.type=local" in str(caught.value)
    assert "rollout.backend=vllm:d4t2" in str(caught.value)


generations = st.builds(
    GenerationConfig,
    n_samples=st.integers(1, 64),
    temperature=st.floats(0.01, 2),
    top_p=st.floats(0.01, 1),
    top_k=st.sampled_from([-1, 1, 50]),
    max_new_tokens=st.integers(10, 99),
    min_new_tokens=st.integers(0, 10),
)


@given(generations)
def test_no_override_changes_nothing(base: GenerationConfig) -> None:
    assert GenerationOverrides().over(base) == base


@given(generations, generations)
def test_a_full_override_wins_in_every_key(base: GenerationConfig, other: GenerationConfig) -> None:
    assert GenerationOverrides.model_validate(other.model_dump()).over(base) == other


def test_a_dotted_path_names_a_reward_function() -> None:
    path = "areal.reward.clevr_count_70k.clevr_count_70k_reward_fn"
    assert make(reward_fn=path).reward_function == path
    assert make(reward_fn="math").reward_function is None
