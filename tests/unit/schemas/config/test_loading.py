"""Loading: files, interpolation, overrides, training configs, origins, and each error with its next step."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.config import (
    EvaluationConfig,
    config_digest,
    config_to_yaml,
    load_config,
    load_with_origins,
    render_config,
)
from schemas.config.derivation import backend_of_allocation
from schemas.config.source import parse_override

ROOT = Path(__file__).parents[4]
MINIMAL = "actor: {path: ckpt}\nvalid_dataset: {path: d.jsonl}\n"


def test_a_minimal_config_gets_the_defaults(write) -> None:
    config = load_config(write(MINIMAL))
    assert config == EvaluationConfig.model_validate({"actor": {"path": "ckpt"}, "valid_dataset": {"path": "d.jsonl"}})
    assert (config.experiment_name, config.trial_name, config.scheduler.type) == ("default", "trial0", "local")


def test_the_path_may_be_text(write) -> None:
    path = write(MINIMAL)
    assert load_config(str(path)) == load_config(path)


# --- training configs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("training_*.yaml")), ids=lambda path: path.stem)
def test_a_training_config_loads_unchanged(path: Path) -> None:
    loaded = load_with_origins(path)
    assert loaded.unknown_keys == ()
    assert loaded.notice is not None
    assert "saver" in loaded.notice
    assert "ref" in loaded.ignored_sections
    assert load_config(path, ["actor.optimizer.lr=1e-4", "saver.freq_steps=2"]) == loaded.config


def test_a_training_config_with_sglang() -> None:
    config = load_config(ROOT / "examples/training_grpo_sglang.yaml")
    assert config.tokenizer_path == config.actor.path == "Qwen/Qwen3-0.6B"
    assert config.backend.data_parallel == 8
    assert config.generation.n_samples == 8
    assert config.valid_dataset.batch_size == 64
    assert config.max_model_len == 8192
    assert config.evaluator.freq_steps == 50


def test_a_training_config_with_eval_gconfig() -> None:
    config = load_config(ROOT / "examples/training_rloo_vllm.yaml")
    assert (config.generation.n_samples, config.generation.temperature) == (4, 0.6)
    assert config.generation.max_new_tokens == 4096
    assert (config.workflow, config.reward_fn) == ("single_turn", "math")


def test_a_training_config_of_the_older_form() -> None:
    loaded = load_with_origins(ROOT / "examples/training_ppo_critic.yaml")
    assert loaded.config.rollout.backend == "vllm:d2"
    assert "allocation_mode" not in loaded.ignored_sections
    assert "from allocation_mode" in str(loaded.origins["rollout", "backend"])
    assert (
        load_config(ROOT / "examples/training_ppo_critic.yaml", ["rollout.backend=vllm:d1"]).rollout.backend
        == "vllm:d1"
    )


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("sglang.d4p1t1+d4p1t1", "sglang:d4"),
        ("vllm:d4p1t2+d4p1t1c2", "vllm:d4t2"),
        ("sglang[rollout]:d2+fsdp[actor]:d4", "sglang[rollout]:d2"),
        ("sglang.d64p1m2+d32p2m1", "sglang:d64t2"),
        ("fsdp:d4|vllm:d2", "vllm:d2"),
        ("sglang:d4t2+eval", "sglang:d4t2"),
        ("d8p1t1", None),
        ("fsdp:d8", None),
        ("", None),
    ],
)
def test_the_inference_part_of_an_allocation(text: str, backend: str | None) -> None:
    assert backend_of_allocation(text) == backend


def test_the_model_section_of_older_sft_configs_is_the_actor(write) -> None:
    path = write(
        "model: {path: old, optimizer: {lr: 1}}\nref: {path: '${model.path}'}\nvalid_dataset: {path: d.jsonl}\n"
    )
    loaded = load_with_origins(path)
    assert loaded.config.actor.path == "old"
    assert loaded.ignored_sections == ("ref",)
    assert str(loaded.origins["actor", "path"]).startswith("from model.path")
    assert load_config(path, ["actor.path=new"]).actor.path == "new"


def test_a_saved_training_config_with_python_tuples_and_empty_values_loads(write) -> None:
    path = write(
        MINIMAL + "tokenizer_path: ''\nrollout:\n  backend: ''\n  scheduling_spec: !!python/tuple\n  - gpu: 1\n"
        "vllm: null\nperf_tracer: null\neval_gconfig: null\ngconfig: {stop: null, top_k: 100000000}\n"
    )
    config = load_config(path)
    assert config.tokenizer_path is None
    assert config.rollout.backend == "vllm:d1"


def test_training_keys_that_do_not_resolve_are_nobodys_business(write) -> None:
    text = "actor: {path: ckpt, mb_spec: '${nowhere}', log_level: '${HOME:-x}', _version: 'a ${'}\n"
    text += "valid_dataset: {path: d.jsonl}\ntokenizer_path: ${actor.path}\n"
    assert load_config(write(text + "ref: {path: '${actor.nothing}'}\n")).actor.path == "ckpt"


def test_an_unknown_section_is_named_and_ignored(write) -> None:
    loaded = load_with_origins(write(MINIMAL + "tournament: {rounds: 3}\nsaver: {freq_steps: 1}\n"))
    assert loaded.unknown_keys == ("tournament",)
    assert loaded.notice == "ignored, read by training only: saver; ignored, unknown: tournament"


def test_an_unknown_server_key_is_named_and_ignored(write) -> None:
    assert load_with_origins(write(MINIMAL + "sglang: {warp_drive: 9}\n")).unknown_keys == ("sglang.warp_drive",)


def test_neutral_sampling_keys_are_accepted(write) -> None:
    load_config(
        write(MINIMAL + "gconfig: {frequency_penalty: 0.0, ignore_eos: false, stop_token_ids: [], max_tokens: 9000}\n")
    )


# --- values -----------------------------------------------------------------------------------------------------------


def test_numbers_without_a_dot_and_text_that_looks_like_numbers(write) -> None:
    config = load_config(
        write(MINIMAL + "experiment_name: 0123\ntrial_name: 2024-01-01\ngconfig: {temperature: 1e-1, top_p: 5E-1}\n")
    )
    assert (config.experiment_name, config.trial_name) == ("0123", "2024-01-01")
    assert (config.gconfig.temperature, config.gconfig.top_p) == (0.1, 0.5)


WRITTEN = ["3.10", "0022", "4:00:00", "1e3", "1_0", "010", "0x1F", "no", "on", "True", "2024-01-01", "+7", ".5", "1.50"]
TEXT_KEYS = [
    "experiment_name",
    "trial_name",
    "valid_dataset.name",
    "scheduler.slurm.account",
    "scheduler.slurm.partition",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_text_is_kept_as_it_is_written(write, text: str) -> None:
    """In the file, as an override, inside braces, and through an interpolation into a section nobody types."""
    file = (
        MINIMAL + f"notes: {{v: {text}}}\nscheduler: {{slurm: {{env: {{A: {text}}}}}}}\ngconfig: {{stop: [{text}]}}\n"
    )
    overrides = [
        f"scheduler.slurm.env.B={text}",
        "scheduler.slurm.env.C=${notes.v}",
        f"scheduler.slurm.env={{D: {text}}}",
        f"valid_dataset.exclude_golds=[{text}]",
        "eval_gconfig.stop=['${notes.v}']",
    ]
    config = load_config(write(file), overrides)
    assert config.scheduler.slurm.env == dict.fromkeys("ABCD", text)
    assert {config.gconfig.stop, config.generation.stop, config.valid_dataset.exclude_golds} == {(text,)}
    for key in TEXT_KEYS if text.isalnum() else ["valid_dataset.name"]:
        assert f": {text}\n" in config_to_yaml(load_config(write(file), [f"{key}={text}"])).replace("'", "")


def test_interpolation_reaches_across_ignored_sections_lists_and_defaults(write) -> None:
    config = load_config(
        write(
            "ref: {name: big, ends: [a, '${ref.name}']}\nactor: {path: 'm/${ref.name}-${seed}'}\n"
            "valid_dataset: {path: d, limit: '${gconfig.max_new_tokens}'}\n"
            "gconfig: {stop: '${ref.ends}'}\ntrial_name: ${seed}\neval_gconfig: ${gconfig}\n"
        )
    )
    assert config.actor.path == "m/big-1"
    assert config.valid_dataset.limit == 1024
    assert config.gconfig.stop == ("a", "big")
    assert config.trial_name == "1"
    assert config.eval_gconfig is not None
    assert config.eval_gconfig.stop == ("a", "big")


def test_yaml_merge_keys_and_anchors(write) -> None:
    config = load_config(write(MINIMAL + "base: &b {n_samples: 3, top_p: 0.5}\ngconfig: {<<: *b, top_p: 0.9}\n"))
    assert (config.gconfig.n_samples, config.gconfig.top_p) == (3, 0.9)


@pytest.mark.parametrize(
    ("override", "read", "value"),
    [
        ("gconfig.temperature=0.6", lambda c: c.gconfig.temperature, 0.6),
        ("gconfig.stop=[a, 'b, c']", lambda c: c.gconfig.stop, ("a", "b, c")),
        ("gconfig.stop=END", lambda c: c.gconfig.stop, ("END",)),
        ("gconfig={n_samples: 3}", lambda c: (c.gconfig.n_samples, c.gconfig.max_new_tokens), (3, 77)),
        ("eval_gconfig=null", lambda c: c.eval_gconfig, None),
        ("eval_gconfig.n_samples=2", lambda c: c.generation.n_samples, 2),
        ("valid_dataset.path=reasoning_gym:chain_sum?size=2&seed=1", lambda c: c.valid_dataset.path[-6:], "seed=1"),
        ("valid_dataset.system_prompt=Say: x # y", lambda c: c.valid_dataset.system_prompt, "Say: x # y"),
        ("valid_dataset.system_prompt=", lambda c: c.valid_dataset.system_prompt, ""),
        ("valid_dataset.system_prompt='null'", lambda c: c.valid_dataset.system_prompt, "null"),
        ("valid_dataset.system_prompt=null", lambda c: c.valid_dataset.system_prompt, None),
        ("valid_dataset.system_prompt=- a", lambda c: c.valid_dataset.system_prompt, "- a"),
        ("valid_dataset.system_prompt=*x", lambda c: c.valid_dataset.system_prompt, "*x"),
        ("valid_dataset.name=007", lambda c: c.valid_dataset.name, "007"),
        ("actor.path=/a b/c=d", lambda c: c.actor.path, "/a b/c=d"),
        ("tokenizer_path=${actor.path}/tok", lambda c: c.tokenizer_path, "ckpt/tok"),
        ("valid_dataset.columns={prompt: q, gold: a}", lambda c: c.valid_dataset.columns.gold, "a"),
    ],
)
def test_an_override_is_typed_as_yaml(write, override: str, read, value: object) -> None:
    assert read(load_config(write(MINIMAL + "gconfig: {max_new_tokens: 77}\n"), [override])) == value


@given(
    st.text(st.characters(exclude_categories=["C", "Z"]) | st.sampled_from(" :#=-[]{}'\""), max_size=20)
    .map(str.strip)
    .filter(lambda text: text[:1] not in ("'", '"', "[", "{") and text not in ("~", "null", "Null", "NULL", "???"))
)
def test_plain_text_in_an_override_needs_no_quotes(text: str) -> None:
    override = parse_override(f"valid_dataset.system_prompt={text}")
    assert (override.path, override.value) == (("valid_dataset", "system_prompt"), text)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_text_can_be_quoted_in_an_override(text: str) -> None:
    quoted = yaml.safe_dump(text, default_style='"', allow_unicode=False, width=9999).strip()
    assert parse_override(f"valid_dataset.system_prompt={quoted}").value == text


def test_the_last_override_wins_and_interpolation_sees_it(write) -> None:
    config = load_config(write(MINIMAL + "tokenizer_path: ${actor.path}\n"), ["actor.path=a", "actor.path=b"])
    assert config.tokenizer_path == "b"


# --- errors -----------------------------------------------------------------------------------------------------------


def test_each_value_has_its_origin(write) -> None:
    path = write("seed: 5\n" + MINIMAL + "tokenizer_path: ${actor.path}\ngconfig:\n  top_p: 0.5\nsaver: {x: 1}\n")
    loaded = load_with_origins(path, ["gconfig.n_samples=3", "eval_gconfig={temperature: 0.5}"])
    shown = {".".join(key): str(origin) for key, origin in loaded.origins.items()}
    assert shown["seed"] == f"{path}:1"
    assert shown["actor.path"] == f"{path}:2"
    assert shown["tokenizer_path"] == f"{path}:4, interpolated from ${{actor.path}}"
    assert shown["gconfig.top_p"] == f"{path}:6"
    assert shown["gconfig.n_samples"] == "override gconfig.n_samples=3"
    assert shown["eval_gconfig.temperature"] == "override eval_gconfig={temperature: 0.5}"
    assert shown["eval_gconfig.top_p"] == shown["cluster.n_nodes"] == "default"
    text = render_config(loaded)
    assert "n_samples: 3" in text
    assert "# override gconfig.n_samples=3" in text
    assert "# evaluation draws with: n_samples 3, temperature 0.5" in text
    assert "# ignored, read by training only: saver" in text
    assert load_config(write(text)) == loaded.config


def test_a_value_cannot_break_out_of_the_rendering(write) -> None:
    overrides = [r'valid_dataset.system_prompt="a\nseed: 9 # x\u2028\u0085\e[31m"', 'gconfig.stop=["\\n", "# x"]']
    loaded = load_with_origins(write(MINIMAL), overrides)
    text = render_config(loaded)
    assert load_config(write(text)) == loaded.config
    assert "\x1b" not in text


prompts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(lambda text: text != "???")
tricky = st.sampled_from(
    ["${a}", "\\${a}", "\\\\${a}", "null", "1e5", "0x1f", "yes", "~", "- a", "a: b", "# c", "${", "\\"]
)


@settings(deadline=None, max_examples=15)
@given(
    prompts | tricky,
    st.lists((prompts | tricky).filter(bool), max_size=3),
    st.integers(0, 2**63 - 1),
    st.floats(0.001, 100),
)
def test_yaml_reloads_to_an_equal_config(tmp_path_factory, prompt: str, stop: list[str], seed: int, t: float) -> None:
    config = EvaluationConfig.model_validate(
        {
            "seed": seed,
            "actor": {"path": "ckpt"},
            "valid_dataset": {"path": "d", "system_prompt": prompt, "columns": {"prompt": "q", "gold": "1"}},
            "gconfig": {"stop": stop, "temperature": t},
            "eval_gconfig": {"n_samples": 2},
        }
    )
    path = tmp_path_factory.getbasetemp() / "roundtrip.yaml"
    path.write_text(config_to_yaml(config), encoding="utf-8", newline="")
    assert load_config(path) == config
    path.write_text(render_config(load_with_origins(path)), encoding="utf-8", newline="")
    assert load_config(path) == config


def test_the_digest_follows_the_values_alone(write) -> None:
    one = load_config(write(MINIMAL))
    same = load_config(write("# other text\nseed: ${gconfig.n_samples}\n" + MINIMAL))
    assert config_digest(one) == config_digest(same)
    assert config_digest(one) != config_digest(load_config(write(MINIMAL), ["seed=2"]))
    assert len(config_digest(one)) == 32


def test_importing_the_configuration_stays_light() -> None:
    code = (
        "import sys, schemas.config;"
        "print([m for m in ('omegaconf', 'prefect', 'pyarrow', 'numpy', 'torch', 'datasets') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"
