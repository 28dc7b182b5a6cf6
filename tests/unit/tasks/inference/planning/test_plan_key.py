"""What decides an answer is in the plan's key, and nothing else is: the list of docs/resuming.md, one row each."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.checkpoints import inspect_checkpoint
from schemas.config import load_config
from tasks.checkpoint.resolution import identify_checkpoint
from tasks.inference.stage import make_run_plan
from tasks.validation_set.loading import load_validation_set
from tests.support.checkpoint_folders import CONFIG, make_adapter, make_base, make_checkpoint

SETTINGS = """
valid_dataset: {path: DATA}
actor: {path: checkpoint}
gconfig: {n_samples: 2, temperature: 1.0, max_new_tokens: 64}
"""
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}


def plan_key(checkpoint: Path, *overrides: str) -> str:
    """The key of the plan that a command would make of a folder, without a model."""
    data, settings = checkpoint.parent / "data.jsonl", checkpoint.parent / "eval.yaml"
    if not data.exists():
        data.write_text("".join(f'{{"question": "What is {n} + 1?", "answer": "#### {n + 1}"}}\n' for n in range(3)))
    settings.write_text(SETTINGS.replace("DATA", str(data)))
    config = load_config(settings, overrides)
    report = inspect_checkpoint(checkpoint)
    assert report.status == "complete", report.problems
    validation_set = load_validation_set(config, report, report.tokenizer_folder or report.path)
    identity = identify_checkpoint(report)
    return make_run_plan(config, identity, report.eos_token_ids, validation_set, device="cpu").plan_key


@pytest.mark.parametrize(
    "override",
    [
        "seed=2",
        "gconfig.n_samples=3",
        "gconfig.temperature=0.5",
        "gconfig.top_p=0.9",
        "gconfig.top_k=7",
        "gconfig.max_new_tokens=65",
        "gconfig.min_new_tokens=1",
        "gconfig.stop=[END]",
        "gconfig.min_p=0.1",
        "gconfig.repetition_penalty=1.1",
        "gconfig.presence_penalty=0.1",
        "gconfig.frequency_penalty=-0.1",
        "gconfig.stop_token_ids=[3]",
        "rollout.backend=transformers:d1",
        "actor.dtype=float32",
        "consistency.strict=true",
        "vllm.max_model_len=512",
        "valid_dataset.limit=2",
        "valid_dataset.system_prompt=Be brief.",
        "valid_dataset.prompt_suffix= Answer.",
        "engine.stand_in={}",
        "engine.stand_in={accuracy: 0.5}",
    ],
)
def test_a_setting_that_decides_an_answer_changes_the_key(tmp_path: Path, override: str) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    before = "engine.stand_in={}" if "accuracy" in override else "seed=1"
    assert plan_key(checkpoint, override) != plan_key(checkpoint, before)


@pytest.mark.parametrize(
    "override",
    [
        "experiment_name=other",
        "actor.path=elsewhere",
        "cluster.fileroot=elsewhere",
        "scheduler.type=slurm",
        "rollout.backend=vllm:d2t2",
        "rollout.max_concurrent_rollouts=3",
        "engine.memory_ratio=0.5",
        "oom.shrink=false",
        "consistency.canaries=0",
        "grading.timeout_s=9",
        "metrics.pass_at_k=[1]",
        "drift.enabled=false",
        "watch.every=2",
        "evaluator.freq_steps=5",
    ],
)
def test_who_generates_and_what_is_made_of_it_does_not(tmp_path: Path, override: str) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    assert plan_key(checkpoint, override) == plan_key(checkpoint)


@pytest.mark.parametrize("unset", ["min_p=0", "repetition_penalty=1", "stop_token_ids=[]", "presence_penalty=null"])
def test_a_parameter_that_earlier_versions_lacked_leaves_their_keys_alone(tmp_path: Path, unset: str) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    assert plan_key(checkpoint, f"gconfig.{unset}") == plan_key(checkpoint)


@pytest.mark.parametrize("fault", ["step_s: 1", "load_s: 1", "sequence_bytes: 9", "hanging_item_rate: 0.1"])
def test_the_pace_and_the_faults_of_the_dummy_engine_may_change_in_a_resumed_run(tmp_path: Path, fault: str) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    assert plan_key(checkpoint, f"engine.stand_in={{{fault}}}") == plan_key(checkpoint, "engine.stand_in={}")


def _edit(name: str, **changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / name
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({key: value for key, value in (content | changes).items() if value != "absent"}))

    return edit


def _append(name: str, text: str = " ") -> Callable[[Path], None]:
    def append(folder: Path) -> None:
        with (folder / name).open("a") as file:
            file.write(text)

    return append


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda folder: make_checkpoint(folder, fill=1), id="weights"),
        pytest.param(_edit("config.json", **ROPE), id="rope"),
        pytest.param(_edit("config.json", sliding_window=128), id="window"),
        pytest.param(_edit("config.json", head_dim=64), id="head_dim"),
        pytest.param(_edit("config.json", dtype="float32"), id="dtype"),
        pytest.param(_edit("config.json", quantization_config={"quant_method": "fp8"}), id="quantization"),
        pytest.param(_edit("config.json", text_config={"num_hidden_layers": 3}), id="nested"),
        pytest.param(_edit("config.json", eos_token_id=[7, 8]), id="eos"),
        pytest.param(_edit("generation_config.json", eos_token_id=6), id="generation-eos"),
        pytest.param(_edit("hf_quant_config.json", kv_cache_quant_algo="FP8"), id="modelopt"),
        pytest.param(_edit("tokenizer_config.json", add_prefix_space=True), id="tokenizer"),
        pytest.param(
            lambda folder: (folder / "chat_template.jinja").write_text("{{ messages[0].content }}"), id="chat"
        ),
        pytest.param(_append("../data.jsonl", '{"question": "What is 9 + 1?", "answer": "#### 10"}\n'), id="dataset"),
    ],
)
def test_a_file_that_decides_an_answer_changes_the_key(tmp_path: Path, change: Callable[[Path], object]) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    before = plan_key(checkpoint)
    change(checkpoint)
    assert plan_key(checkpoint) != before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_edit("config.json", transformers_version="5.9", _name_or_path="/elsewhere"), id="saved-by"),
        pytest.param(_edit("config.json", dtype="absent", torch_dtype="torch.bfloat16"), id="older-dtype"),
        pytest.param(_edit("config.json", use_cache=False), id="cache"),
        pytest.param(_edit("config.json", text_config={"transformers_version": "5"}), id="nested"),
        pytest.param(lambda folder: (folder / "config.json").write_text(json.dumps(CONFIG, indent=3)), id="layout"),
        pytest.param(_edit("generation_config.json", temperature=0.3, transformers_version="5.9"), id="generation"),
        pytest.param(_edit("tokenizer_config.json", name_or_path="/elsewhere"), id="tokenizer"),
        pytest.param(_edit("trainer_state.json", global_step=7), id="trainer"),
        pytest.param(lambda folder: (folder / "train.py").write_text("x"), id="script"),
    ],
)
def test_a_file_that_decides_none_does_not(tmp_path: Path, change: Callable[[Path], object]) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    _edit("config.json", text_config={})(checkpoint)
    before = plan_key(checkpoint)
    change(checkpoint)
    if "text_config" not in json.loads((checkpoint / "config.json").read_text()):
        _edit("config.json", text_config={})(checkpoint)
    assert plan_key(checkpoint) == before


def test_an_adapter_is_known_by_its_base_s_configuration_and_its_own(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    adapter = make_adapter(tmp_path / "adapter", base)
    keys = [plan_key(adapter)]
    _edit("config.json", **ROPE)(base)
    keys.append(plan_key(adapter))
    _edit("adapter_config.json", lora_alpha=8)(adapter)
    keys.append(plan_key(adapter))
    assert len(set(keys)) == 3
