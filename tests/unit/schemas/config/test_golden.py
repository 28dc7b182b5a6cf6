"""What a user sees of a configuration: origins, values, notices and errors, byte for byte.

To accept a change: MILEPOST_ACCEPT=1 pytest tests/unit/schemas/config/test_golden.py
"""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest

from schemas.config import config_digest, load_with_origins, render_config
from schemas.errors import ConfigError

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests/golden/config"
ACCEPT = "accept with: MILEPOST_ACCEPT=1 pytest tests/unit/schemas/config/test_golden.py"
HEAD = "actor: {path: ckpt}\nvalid_dataset: {path: d.jsonl}\n"

_KEYS = re.compile(r"(keys of \w+|expected a section with|evaluation draws with):? .*")

CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "smallest": (HEAD, ()),
    "text_as_written": (
        "trial_name: 0123\nnotes: {python: 3.10, time: 4:00:00}\n"
        + HEAD
        + "scheduler:\n  slurm:\n    env: {PYTHON_VERSION: 3.10, ON: on, LATER: '${notes.time}'}\n"
        "gconfig: {stop: [no, 1e3], temperature: 1e-1}\n",
        ("scheduler.slurm.env.B=1_0", "valid_dataset.exclude_golds=[010, 0x1F]"),
    ),
    "overrides": (
        HEAD + "gconfig: {n_samples: 2, stop: [a, b]}\neval_gconfig: {temperature: 0.5}\n",
        (
            "gconfig.stop.1=c",
            "eval_gconfig={top_p: 0.9}",
            "valid_dataset.system_prompt=Say: x # y",
            "tokenizer_path=${actor.path}/tok",
            "gconfig.n_samples=3",
        ),
    ),
    "interpolation": (
        (
            "base: &base {n_samples: 3, top_p: 0.5}\nref: {name: big, ends: [x, '${ref.name}']}\n"
            "actor: {path: 'm/${ref.name}-${seed}'}\nvalid_dataset: {path: d, limit: '${gconfig.max_new_tokens}'}\n"
            "gconfig: {<<: *base, stop: '${ref.ends}'}\ntrial_name: ${seed}\n"
        ),
        (),
    ),
    "older_names": (
        (
            "model: {path: old, optimizer: {lr: 1}}\nvalid_dataset: {path: d.jsonl}\nallocation_mode: vllm.d2p1m2+d4\n"
            "reward_fn_path: areal.reward.gsm8k.gsm8k_reward_fn\nvllm: {dtype: half}\ngconfig: {max_tokens: 4096}\n"
            "tournament: {rounds: 3}\nsaver: {freq_steps: 1}\n"
        ),
        (),
    ),
    "misspelt_keys": (
        (
            "actor:\n  path: ckpt\nvalid_dateset:\n  path: x\nvalid_dataset:\n  path: y\n  limits: 3\n"
            "gconfig:\n  temprature: 1\n  n_sample: 2\nn_samples: 2\nsglang: {context_len: 9}\n"
        ),
        ("actor.optimzer.lr=1", "temperature=1", "tournament.rounds=1", "abc", "gconfig.stop='a"),
    ),
    "wrong_values": (
        HEAD + "seed: true\ncluster: {fileroot: ''}\ngconfig:\n  n_samples: 0\n  greedy: 3\n  top_k: 0\n"
        "  stop: {a: b}\nrollout:\n  backend: d4\nscheduler: {type: k8s, slurm: 4}\nworkflow: a.B\n"
        "grading: {timeout_s: true, num_processes: 2.5}\ndrift: 3\nexperiment_name: '${nowhere.x}'\n",
        ("gconfig.top_p=2", "trial_name=a/b", "gconfig.temperature.deep=1", "eval_gconfig.top_p=???"),
    ),
    "missing_keys": ("gconfig: {n_samples: 2}\n", ()),
    "not_supported": (
        HEAD + "max_turns: 4\ngconfig: {ignore_eos: true}\nvllm: {quantization: fp8}\nsglang: {quantization: fp8}\n",
        ("rollout.agent={agent_cls_path: a.B}",),
    ),
    "two_values_for_one": (
        (
            "actor: {path: c, dtype: float32}\nvalid_dataset: {path: d, reward_fn: a.b}\nvllm: {dtype: bfloat16}\n"
            "reward_fn: math\nallocation_mode: (sglang:d4)+d4\n"
        ),
        (),
    ),
    "not_yaml": ("actor: {path: [\n", ()),
    "a_key_twice": ("actor: {path: x}\nseed: 1\nactor: {path: y}\n", ()),
    "a_list": ("- a\n", ()),
    "secrets": (HEAD + "trial_name: ${oc.env:AWS_SECRET_ACCESS_KEY}\nexperiment_name: '${'\n", ()),
    **{
        path.stem: (path.read_text(encoding="utf-8"), ("actor.path=ckpt", "rollout.backend=vllm:d1"))
        for path in sorted((ROOT / "examples").glob("*.yaml"))
    },
}


def shown(text: str, overrides: tuple[str, ...]) -> str:
    """What `--print-config` says, less what changes when a field is added: values nobody set, and lists of keys."""
    Path("eval.yaml").write_text(text, encoding="utf-8")
    try:
        loaded = load_with_origins("eval.yaml", overrides)
    except ConfigError as exc:
        return _KEYS.sub(r"\1: …", f"{exc}\n")
    lines = _KEYS.sub(r"\1: …", render_config(loaded)).splitlines()
    return "\n".join(line for line in lines if not line.endswith(("# default", ":"))) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_what_a_user_sees_of_a_configuration(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, text = GOLDEN / f"{name}.txt", shown(*CASES[name])
    if os.environ.get("MILEPOST_ACCEPT"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), ACCEPT


def test_the_digest_is_of_canonical_json(tmp_path: Path) -> None:
    """Runs are known by it: the same values have the same digest in every version."""
    (tmp_path / "eval.yaml").write_text(CASES["overrides"][0] + "tokenizer_path: Grüße\n", encoding="utf-8")
    config = load_with_origins(tmp_path / "eval.yaml").config
    values = config.model_dump(mode="json")
    added = {"min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "stop_token_ids"}
    del values["store"], values["chat"], values["prompt"]
    for section in ("gconfig", "eval_gconfig"):
        values[section] = {key: value for key, value in values[section].items() if key not in added}
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")
    assert config_digest(config) == hashlib.blake2b(canonical, digest_size=16, person=b"milepost-config").hexdigest()
