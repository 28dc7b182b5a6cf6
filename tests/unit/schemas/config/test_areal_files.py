"""Look-alikes of every kind of AReaL's example files: evaluated as its script does, or refused with which key."""

import pytest

from schemas.config import LoadedConfig, describe_sampling, load_with_origins
from schemas.errors import ConfigError

COMMON = """
experiment_name: sums
trial_name: t1
seed: 5
total_train_epochs: 3
tokenizer_path: ${actor.path}
cluster: {n_nodes: 1, n_gpus_per_node: 4, fileroot: out, name_resolve: {type: nfs, nfs_record_root: /n}}
actor:
  backend: fsdp:d2
  path: org/small
  dtype: bfloat16
  optimizer: {type: adam, lr: 1e-6}
  scheduling_spec:
    - {task_type: worker, port_count: 2, gpu: 1, mem: 32, cmd: python3 -m areal.infra.rpc.rpc_server, env_vars: {}}
ref: {path: '${actor.path}'}
train_dataset: {path: data/train, type: rl, batch_size: 8}
saver: {freq_steps: 5}
evaluator: {freq_epochs: 1, fileroot: out}
"""
DATASET = "valid_dataset: {path: openai/gsm8k, type: rl, split: test, batch_size: 8, num_workers: 2}\n"
VLLM = "rollout: {backend: 'vllm:d2', max_concurrent_rollouts: 16, scheduling_spec: '${actor.scheduling_spec}'}\n"
SGLANG = "rollout: {backend: 'sglang:d2', queue_size: null}\nsglang: {model_path: x, context_length: 4096}\n"
GCONFIG = "gconfig: {n_samples: 4, max_new_tokens: 512, greedy: false, temperature: 0.8}\n"

EVALUATED: dict[str, tuple[str, dict[str, object]]] = {
    "grpo with sglang": (SGLANG + GCONFIG + DATASET, {"rollout.backend": "sglang:d2", "generation.n_samples": 4}),
    "grpo with vllm": (VLLM + GCONFIG + DATASET, {"rollout.backend": "vllm:d2", "generation.temperature": 0.8}),
    "ppo with a critic": (
        VLLM + GCONFIG + DATASET + "critic: {path: org/critic, is_critic: true}\n",
        {"actor.path": "org/small"},
    ),
    "allocation_mode": (GCONFIG + DATASET + "allocation_mode: vllm:d2t2+d4\n", {"rollout.backend": "vllm:d2t2"}),
    "eval_gconfig": (
        VLLM + GCONFIG + DATASET + "eval_gconfig: {temperature: 0.6, n_samples: 2}\n",
        {"generation.temperature": 0.6, "generation.n_samples": 2, "generation.max_new_tokens": 512},
    ),
    "lora": (
        VLLM + GCONFIG + DATASET + "vllm: {enable_lora: true, max_lora_rank: 32}\n",
        {"actor.path": "org/small"},
    ),
    "vision": (  # its rows hold images: the dataset is refused (tests/unit/tasks/validation_set)
        VLLM + GCONFIG + DATASET.replace("openai/gsm8k", "org/geometry"),
        {"valid_dataset.path": "org/geometry"},
    ),
    "one workflow": (
        VLLM + GCONFIG + DATASET + "workflow: areal.workflow.rlvr.RLVRWorkflow\nreward_fn_path: a.b\n",
        {"workflow": "single_turn", "reward_fn": "a.b"},
    ),
    "one turn": (VLLM + GCONFIG + DATASET + "max_turns: 1\nagent_run_args: {}\n", {"generation.n_samples": 4}),
    "slurm": (
        VLLM + GCONFIG + DATASET + "scheduler: {type: slurm, slurm: {partition: gpu}}\n",
        {"scheduler.slurm.partition": "gpu", "scheduler.slurm.memory": "32G"},
    ),
    "ray": (VLLM + GCONFIG + DATASET + "scheduler: {type: ray}\n", {"scheduler.type": "ray"}),  # refused at launch
}

AGENT = "rollout: {backend: 'sglang:d1', agent: {mode: inline, agent_cls_path: my.Agent}}\n"
REFUSED: dict[str, tuple[str, str, str]] = {
    "sft": (DATASET.replace("rl", "sft"), "valid_dataset.type", "a loss"),
    "reward model": (DATASET.replace("rl", "rw"), "valid_dataset.type", "a pairwise accuracy"),
    "dpo": (DATASET.replace("rl", "dpo"), "valid_dataset.type", "a pairwise accuracy"),
    "a critic as the model": (
        DATASET + "actor: {path: c, is_critic: true}\n",
        "actor.is_critic",
        "generated or scored",
    ),
    "multi-turn": (SGLANG + DATASET + "agent_run_args: {max_turns: 3}\n", "agent_run_args", "generated or scored"),
    "tools": (SGLANG + DATASET + "tir: {max_turns: 2, enable_tools: python}\n", "tir", "generated or scored"),
    "agent": (AGENT + DATASET + "workflow: my.agents.MathAgent\n", "rollout.agent", "generated or scored"),
    "agent workflow": (VLLM + DATASET + "workflow: my.agents.MathAgent\n", "workflow", "single_turn"),
    "agent builder": (VLLM + DATASET + "agent_builder_path: a.b\n", "agent_builder_path", "generated or scored"),
    "customer service": (VLLM + DATASET + "econfig: {domain: shop}\n", "econfig", "generated or scored"),
    "search": (VLLM + DATASET + "max_turns: 32\n", "max_turns", "generated or scored"),
    "terminal": (VLLM + DATASET + "n_trajs: 4\n", "n_trajs", "generated or scored"),
    "trajectories": (VLLM + DATASET + "max_tokens_per_trajectory: 99\n", "max_tokens_per_trajectory", "generated"),
    "selection": (VLLM + DATASET + "selection: best\n", "selection", "generated or scored"),
    "gate": (VLLM + DATASET + "gate: {accuracy: 0.5}\n", "gate", "generated or scored"),
    "workflow arguments": (VLLM + DATASET + "workflow_kwargs: {enable_x: 1}\n", "workflow_kwargs", ""),
    "judge": (VLLM + DATASET + "judge_engine: {backend: 'vllm:d1'}\n", "judge_engine", "generated or scored"),
    "engine in brackets": (DATASET + "allocation_mode: (sglang:d4)+d4\n", "allocation_mode", "set rollout.backend"),
    "engine in capitals": (DATASET + "allocation_mode: SGLang:d4+d4\n", "allocation_mode", "set rollout.backend"),
    "quantized": (VLLM + DATASET + "vllm: {quantization: fp8}\n", "vllm.quantization", "generated or scored"),
    "training alone": (VLLM, "valid_dataset.path", "is missing"),
}


def load(write, text: str, *overrides: str) -> LoadedConfig:
    common = COMMON
    for line in text.splitlines():  # a section of the look-alike replaces the common one
        if line.startswith("actor:"):
            start = common.index("actor:")
            common = common[:start] + common[common.index("ref:") :]
    return load_with_origins(write(common + text), overrides)


@pytest.mark.parametrize("kind", EVALUATED)
def test_a_file_is_evaluated_as_its_script_does(write, kind: str) -> None:
    text, expected = EVALUATED[kind]
    loaded = load(write, text)
    for dotted, value in expected.items():
        found: object = loaded.config
        for key in dotted.split("."):
            found = getattr(found, key)
        assert (dotted, found) == (dotted, value)
    assert loaded.config.tokenizer_path == loaded.config.actor.path
    assert loaded.unknown_keys == ()


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_means_something_else_is_refused_with_the_key(write, kind: str) -> None:
    text, key, reason = REFUSED[kind]
    with pytest.raises(ConfigError) as caught:
        load(write, text)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert any(line.strip(" -").startswith(key) for line in message.splitlines()), message
    assert reason in message
    assert "there is no such key" not in message


# --- scheduling_spec --------------------------------------------------------------------------------------------------

SPEC = """
actor: {path: c}
valid_dataset: {path: d}
scheduler: {type: slurm, slurm: {account: a}}
rollout:
  backend: vllm:d2t2
  scheduling_spec:
    - task_type: worker
      gpu: 1
      cpu: 4
      mem: 8
      port_count: 2
      env_vars: {PYTHON_VERSION: 3.10, DEBUG: on, LIMIT: '${seed}'}
      exclude: node[1-3,5],node9
      cmd: python3 -m areal.infra.rpc.rpc_server
"""


def slurm_of(loaded: LoadedConfig) -> dict[str, object]:
    return loaded.config.scheduler.slurm.model_dump(mode="json", exclude_defaults=True)


def test_a_scheduling_spec_becomes_the_request_of_a_replica(write) -> None:
    loaded = load_with_origins(write(SPEC))
    assert slurm_of(loaded) == {
        "account": "a",
        "cpus_per_replica": 8,
        "memory": "16G",
        "env": {"PYTHON_VERSION": "3.10", "DEBUG": "on", "LIMIT": "1"},
        "exclude_nodes": ["node[1-3,5]", "node9"],
    }
    assert loaded.unused_keys == ()
    assert str(loaded.origins["scheduler", "slurm", "memory"]).startswith("from rollout.scheduling_spec, ")


def test_a_key_of_scheduler_slurm_goes_before_the_spec(write) -> None:
    loaded = load_with_origins(write(SPEC), ["scheduler.slurm.memory=99G", "scheduler.slurm.env={A: b}"])
    assert (slurm_of(loaded)["memory"], slurm_of(loaded)["env"]) == ("99G", {"A": "b"})


@pytest.mark.parametrize(
    ("line", "overrides", "taken", "named"),
    [
        ("nodelist: node7", (), {"extra": ["--nodelist=node7"]}, []),
        ("nodelist: 'node[7-9]'", (), {}, ["nodelist"]),
        ("image: /a.sif\n      mount: /d:/d", (), {}, ["image", "mount"]),
        (
            "image: /a.sif\n      mount: /d:/d",
            ("engine.python=/py",),
            {"container": "apptainer exec --nv --bind /d:/d /a.sif"},
            [],
        ),
        ("additional_bash_cmds: [module load x]", (), {}, ["additional_bash_cmds"]),
        ("cmd2: run.sh", (), {}, ["cmd2"]),
        ("srun_additional_args: --mpi=pmi2", (), {}, ["srun_additional_args"]),
        ("env_vars2: null", (), {}, []),
    ],
)
def test_what_has_no_place_there_is_named(write, line: str, overrides, taken, named: list[str]) -> None:
    loaded = load_with_origins(write(f"{SPEC}      {line}\n"), overrides)
    assert slurm_of(loaded).items() >= taken.items()
    assert loaded.unused_keys == tuple(f"rollout.scheduling_spec.{name}" for name in named)
    assert loaded.notice == (None if not named else f"not passed on: {', '.join(loaded.unused_keys)}")


def test_without_slurm_only_what_a_worker_would_feel_is_named(write) -> None:
    loaded = load_with_origins(write(SPEC + "      image: /a.sif\n"), ["scheduler.type=local"])
    assert slurm_of(loaded) == {"account": "a"}
    assert loaded.unused_keys == ("rollout.scheduling_spec.env_vars", "rollout.scheduling_spec.image")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mem: 8", "mem: lots", 'mem is "lots"; allowed: a whole number'),
        ("cpu: 4", "cpu: 99999", "scheduler.slurm.cpus_per_replica = 199998 (from rollout.scheduling_spec"),
        ("DEBUG: on", "'a b': on", "no name of a variable"),
        ("node9", "'node 9'", "names no node"),
    ],
)
def test_a_wrong_value_of_the_spec_is_refused_by_its_name(write, old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.scheduling_spec") as caught:
        load_with_origins(write(SPEC.replace(old, new)))
    assert said in str(caught.value)


# --- what is in force -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "n_samples 1 (default), temperature 1.0 (default), max_new_tokens 1024 (default)"),
        (
            "gconfig: {n_samples: 4, top_p: 0.9, max_new_tokens: 64}\neval_gconfig: {temperature: 0.6}",
            "n_samples 4 (gconfig), temperature 0.6 (eval_gconfig), top_p 0.9 (gconfig), max_new_tokens 64 (gconfig)",
        ),
        (
            "gconfig: {n_samples: 4}\neval_gconfig: {greedy: true}",
            "n_samples 1 (greedy), temperature 0.0 (greedy), max_new_tokens 1024 (default), greedy true (eval_gconfig)",
        ),
    ],
)
def test_the_values_in_force_are_shown_with_their_section(write, text: str, shown: str) -> None:
    loaded = load_with_origins(write(f"actor: {{path: c}}\nvalid_dataset: {{path: d}}\n{text}\n"))
    assert describe_sampling(loaded) == f"sampling: {shown}"


def test_keys_of_the_engines_section_that_may_touch_a_number_are_named(write) -> None:
    text = "vllm: {enforce_eager: true, max_num_seqs: 4, seed: 1, block_size: null}\nsglang: {disable_mla: true}"
    loaded = load_with_origins(write(f"actor: {{path: c}}\nvalid_dataset: {{path: d}}\n{text}\n"))
    assert loaded.notice == "not passed on: vllm.enforce_eager, vllm.max_num_seqs"
