"""Keys that decide what is generated or scored: honoured, or refused by name, never ignored."""

import pytest
import yaml

from schemas.config import load_config, load_with_origins
from schemas.errors import ConfigError

MINIMAL = "actor: {path: ckpt}\nvalid_dataset: {path: d.jsonl}\n"


def nest(dotted: str, value: object) -> dict[str, object]:
    tree: object = value
    for key in reversed(dotted.split(".")):
        tree = {key: tree}
    assert isinstance(tree, dict)
    return tree


def with_key(dotted: str, value: object) -> str:
    tree = {"actor": {"path": "ckpt"}, "valid_dataset": {"path": "d.jsonl"}}
    for section, content in nest(dotted, value).items():
        tree[section] = {**tree.get(section, {}), **content} if isinstance(content, dict) else content
    return yaml.safe_dump(tree)


REFUSED = [
    ("agent_builder_path", "pkg.agents.build"),
    ("agent_builder_kwargs", {"depth": 2}),
    ("agent_run_args", {"rounds": 3}),
    ("tir", {"enable": True}),
    ("econfig", {"domain": "retail"}),
    ("max_turns", 4),
    ("n_trajs", 2),
    ("max_tokens_per_trajectory", 9000),
    ("max_llm_calls_per_run", 7),
    ("judge_engine", {"backend": "vllm:d1"}),
    ("workflow_kwargs", {"enable_thinking": True, "num_turns": 3}),
    ("eval_workflow_kwargs", {"temperature": 0.3}),
    ("selection", "sampled"),
    ("gate", {"min": 0.5}),
    ("tool_server", "http://tools"),
    ("enable_thinking", True),
    ("few_shots", 5),
    ("reward_model", "big-rm"),
    ("rollout.agent", {"agent_cls_path": "pkg.Agent", "mode": "inline"}),
    ("rollout.agent", {"mode": "subproc"}),
    ("rollout.api_url", "http://elsewhere/v1"),
    ("rollout.tool_parser", "hermes"),
    ("actor.is_critic", True),
    ("actor.init_from_scratch", True),
    ("valid_dataset.dataset_kwargs", {"shots": 8}),
    ("valid_dataset.drop_last", True),
    ("gconfig.n", 4),
    ("gconfig.skip_special_tokens", False),
    ("eval_gconfig.ignore_eos", True),
    ("eval_gconfig.use_beam_search", True),
    ("vllm.quantization", "fp8"),
    ("vllm.kv_cache_dtype", "fp8_e4m3"),
    ("vllm.load_format", "dummy"),
    ("vllm.hf_overrides", {"rope_theta": 1}),
    ("vllm.lora_modules", ["a=/b"]),
    ("vllm.rope_scale_type", "yarn"),
    ("scheduler.reward_model_path", "/models/rm"),
]


@pytest.mark.parametrize(("dotted", "value"), REFUSED, ids=[f"{key}={value}" for key, value in REFUSED])
def test_a_key_that_cannot_be_honoured_is_refused_with_value_and_next_step(write, dotted: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(with_key(dotted, value)))
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert message.startswith(f"{dotted} = ")
    assert "decides what is generated or scored" in message
    advice = f"{dotted}={message.rpartition(f'add {dotted}=')[2]}"
    assert load_config(write(with_key(dotted, value)), [advice]).generation == load_config(write(MINIMAL)).generation


@pytest.mark.parametrize(
    ("dotted", "value"),
    [
        ("agent_builder_path", None),
        ("agent_run_args", {}),
        ("tir", ""),
        ("max_turns", 1),
        ("selection", "full"),
        ("enable_thinking", False),
        ("rollout.agent", None),
        ("rollout.agent", {"agent_cls_path": "areal.experimental.openai.proxy.online_agent._OnlineAgent"}),
        ("actor.is_critic", False),
        ("valid_dataset.dataset_kwargs", {}),
        ("gconfig.min_p", 0.0),
        ("gconfig.repetition_penalty", 1.0),
        ("gconfig.skip_special_tokens", True),
        ("gconfig.n", 1),
        ("vllm.kv_cache_dtype", "auto"),
        ("vllm.lora_modules", None),
        ("sglang.kv_cache_dtype", "fp8_e5m2"),  # the backend is vllm
        ("sglang.quantization", "fp8"),
        ("sglang.dtype", "float16"),
    ],
)  # fmt: skip
def test_a_value_that_changes_nothing_passes(write, dotted: str, value: object) -> None:
    assert load_config(write(with_key(dotted, value))) == load_config(write(MINIMAL))


def test_a_key_of_the_engine_in_use_counts_wherever_the_backend_is_named(write) -> None:
    for text in ("allocation_mode: sglang:d2+d2\n", "rollout: {backend: 'sglang:d2'}\n"):
        with pytest.raises(ConfigError, match=r"sglang\.torchao_config"):
            load_config(write(MINIMAL + text + "sglang: {torchao_config: int4wo}\n"))


@pytest.mark.parametrize(
    ("name", "meant"), [("n_samples", "gconfig"), ("limit", "valid_dataset"), ("top_p", "gconfig")]
)
def test_a_key_of_a_section_at_top_level_is_refused_with_its_place(write, name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} \(.*no such key; did you mean {meant}\.{name}"):
        load_config(write(f"{MINIMAL}{name}: 1\n"))


def test_the_dtype_of_the_engines_section_is_the_models(write) -> None:
    loaded = load_with_origins(write(MINIMAL + "vllm: {dtype: half}\n"))
    assert loaded.config.actor.dtype == "float16"
    assert "from vllm.dtype" in str(loaded.origins["actor", "dtype"])
    same = "actor: {path: ckpt, dtype: bfloat16}\nvalid_dataset: {path: d}\nvllm: {dtype: '${actor.dtype}'}\n"
    assert load_config(write(same), ["actor.dtype=float32"]).actor.dtype == "float32"
    with pytest.raises(ConfigError, match=r"vllm\.dtype .* and actor\.dtype .* disagree"):
        load_config(write(same), ["vllm.dtype=float16"])


def test_thinking_of_the_workflow_is_a_variable_of_the_chat_template(write) -> None:
    workflow = MINIMAL + "workflow_kwargs: {enable_thinking: true}\n"
    loaded = load_with_origins(write(workflow))
    assert loaded.config.chat.template_kwargs == {"enable_thinking": True}
    assert "from workflow_kwargs.enable_thinking" in str(loaded.origins["chat", "template_kwargs"])
    evaluation = workflow + "eval_workflow_kwargs: {enable_thinking: false}\n"
    assert load_config(write(evaluation)).chat.template_kwargs == {"enable_thinking": False}
    both = workflow + "chat: {template_kwargs: {reasoning_effort: high, enable_thinking: true}}\n"
    assert load_config(write(both)).chat.template_kwargs == {"reasoning_effort": "high", "enable_thinking": True}
    with pytest.raises(ConfigError, match=r"workflow_kwargs\.enable_thinking .* chat\.template_kwargs\..* disagree"):
        load_config(write(both), ["chat.template_kwargs.enable_thinking=false"])
    with pytest.raises(ConfigError, match=r"workflow_kwargs\.enable_thinking = \"no\" .*allowed: true or false"):
        load_config(write(MINIMAL + "workflow_kwargs: {enable_thinking: 'no'}\n"))


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ("{add_generation_prompt: false}", "follows from the conversation"),
        ("{enable-thinking: false}", "no name of a variable"),
        ("{enable_thinking: [1]}", "template_kwargs"),
        ("[enable_thinking]", "template_kwargs"),
    ],
)
def test_variables_that_no_template_can_be_given_are_refused(write, kwargs: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load_config(write(MINIMAL + f"chat: {{template_kwargs: {kwargs}}}\n"))
    assert caught.value.exit_code == 2
    assert "problems" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prompt: {format: base}", "prompt.format = "),
        ("prompt: {format: completion, template: 'Answer:'}", "does not read 'question'"),
        ("prompt: {template: 'Answer: {{ question }}'}", "does not read 'messages'"),
        ("prompt: {few_shot: 5}", "prompt.few_shot"),
        ("prompt: {few_shot: {split: train}}", "prompt.few_shot.n"),
        ("prompt: {few_shot: {n: 0}}", "prompt.few_shot.n"),
    ],
)
def test_a_prompt_that_asks_nothing_is_refused(write, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(f"{MINIMAL}{text}\n"))
    assert words in str(caught.value)


def test_a_completion_has_no_turns(write) -> None:
    completion = "actor: {path: ckpt}\nprompt: {format: completion}\n"
    for dataset, words in (
        ("{path: d.jsonl, system_prompt: Think.}", "write its text into prompt.template"),
        ("{path: d.jsonl, columns: {messages: turns, gold: answer}}", "reads conversations from 'turns'"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config(write(f"{completion}valid_dataset: {dataset}\n"))


def test_the_reward_function_of_the_dataset_is_the_runs(write) -> None:
    text = "actor: {path: ckpt}\nvalid_dataset: {path: d.jsonl, reward_fn: pkg.rewards.score}\n"
    assert load_config(write(text)).reward_fn == "pkg.rewards.score"
    assert load_config(write(text + "reward_fn_path: pkg.other.score\n")).reward_fn == "pkg.rewards.score"
    with pytest.raises(ConfigError, match=r"valid_dataset\.reward_fn .* and reward_fn .* disagree"):
        load_config(write(text + "reward_fn: math\n"))


@pytest.mark.parametrize(
    ("text", "overrides", "longest"),
    [
        ("gconfig: {max_tokens: 4096, max_new_tokens: 1024}", [], 3072),
        ("gconfig: {max_tokens: 4096}\neval_gconfig: {max_new_tokens: 4000}", [], 96),
        ("gconfig: {max_tokens: 4096}\neval_gconfig: {max_tokens: 2048}", [], 1024),
        ("gconfig: {max_tokens: 4096}", ["valid_dataset.max_length=100"], 100),
        ("gconfig: {max_tokens: 4096}", ["valid_dataset.max_length=9999"], 3072),
        ("gconfig: {max_tokens: null}", [], None),
    ],
)
def test_max_tokens_limits_prompt_and_completion_together(write, text: str, overrides: list[str], longest: int | None):
    assert load_config(write(f"{MINIMAL}{text}\n"), overrides).valid_dataset.max_length == longest


def test_max_tokens_without_room_for_a_prompt_is_refused(write) -> None:
    with pytest.raises(ConfigError, match=r"gconfig\.max_tokens = 512 .*above max_new_tokens, 1024"):
        load_config(write(MINIMAL + "gconfig: {max_tokens: 512}\n"))


@pytest.mark.parametrize(
    "text",
    [
        "(sglang:d4)+d4",
        "SGLang:d4+d4",
        "VLLM.d2",
        "sgl:d4+d4",
        "sglang:d2+vllm:d2",
        "fsdp:d4 + vllm:d2",
        "d4+trtllm:d2",
    ],
)
def test_an_allocation_with_an_engine_that_is_not_read_is_refused(write, text: str) -> None:
    with pytest.raises(ConfigError, match=r"allocation_mode .*set rollout\.backend"):
        load_config(write(f"{MINIMAL}allocation_mode: '{text}'\n"))
    assert load_config(write(f"{MINIMAL}allocation_mode: '{text}'\n"), ["rollout.backend=vllm:d1"]).backend


@pytest.mark.parametrize(
    "text", ["megatron:(attn:d4p2|ffn:d2p2e2)", "fsdp[actor]:d8", "d8p1t1", "eval", "archon:d2+cpu"]
)
def test_an_allocation_of_training_alone_passes(write, text: str) -> None:
    assert load_config(write(f"{MINIMAL}allocation_mode: '{text}'\n")).rollout.backend == "vllm:d1"
