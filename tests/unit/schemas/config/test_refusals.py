"""What a configuration is refused for, and what the message says."""

from pathlib import Path

import pytest

from schemas.config import load_config
from schemas.errors import ConfigError

MINIMAL = "actor: {path: ckpt}\nvalid_dataset: {path: d.jsonl}\n"


def refusal(path: Path | str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_broken_allocation_names_the_key_to_set(write) -> None:
    message = refusal(write(MINIMAL + "allocation_mode: vllm:d0+d4\n"))
    assert "allocation_mode" in message
    assert "set rollout.backend" in message
    assert ":3" in message


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("gconfg: {n_samples: 2}", "gconfig"),
        ("valid_dateset: {path: x}", "valid_dataset"),
        ("gconfig: {temprature: 1}", "gconfig.temperature"),
        ("gconfig: {n_sample: 1}", "gconfig.n_samples"),
        ("sglang: {context_len: 9}", "sglang.context_length"),
        ("rollout: {bakend: 'vllm:d1'}", "rollout.backend"),
        ("evaluator: {freq_epoch: 1}", "evaluator.freq_epochs"),
        ("gconfig: {fileroot: x}", "cluster.fileroot"),
    ],
)
def test_a_misspelt_key_names_line_and_nearest_key(write, text: str, meant: str) -> None:
    message = refusal(write(MINIMAL + text))
    assert f"did you mean {meant}?" in message
    assert "eval.yaml:3)" in message


@pytest.mark.parametrize("line", ["logit_bias: {7: 1.0}", "ignore_eos: true", "no_repeat_ngram_size: 3"])
def test_a_sampling_key_that_cannot_be_honoured_is_refused(write, line: str) -> None:
    assert "decides what is generated or scored" in refusal(write(f"{MINIMAL}gconfig:\n  {line}\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("actor: {path: [", "line"),
        ("a: 1\n\tb: 2\n", "line 2"),
        ("- a\n- b\n", "holds a list"),
        ("just text", "holds a single value"),
        ("actor: {path: x}\nactor: {path: y}\n", "line 2: the key 'actor' was already given in line 1"),
        ("a: &a [*a]\n", "levels"),
        ("? [a]\n: 1\n", "a key must be text"),
        ("actor: 3\nvalid_dataset: {path: d}", "expected a section with path"),
        ("actor:\n  path: ???\nvalid_dataset: {path: d}", "still to be filled in"),
        ("actor: {path: '${a.b}'}\nvalid_dataset: {path: d}", "there is no key 'a.b'"),
        ("actor: {path: '${actor.pth}'}\nvalid_dataset: {path: d}", "did you mean ${actor.path}?"),
        ("actor: {path: '${tokenizer_path}'}\ntokenizer_path: ${actor.path}\nvalid_dataset: {path: d}", "ecursive"),
        ("actor: {path: '${'}\nvalid_dataset: {path: d}", "cannot be interpolated"),
        ("valid_dataset: {path: d}", "actor.path is missing"),
        ("actor: {path: ckpt}", "reasoning_gym"),
        ("", "valid_dataset.path is missing"),
        (MINIMAL + "seed: true", "expected whole number"),
        (
            MINIMAL + "seed: x",
            'seed = "x" (',
        ),
        (MINIMAL + "grading: {timeout_s: true}", "expected number"),
        (MINIMAL + "gconfig: {greedy: 3}", "expected true or false"),
        (MINIMAL + "gconfig: {n_samples: [1]}", "expected whole number"),
        (MINIMAL + "gconfig: {stop: {a: b}}", "expected list of text"),
        (MINIMAL + "gconfig: {n_samples: 0}", "≥ 1"),
        (MINIMAL + "rollout: {backend: 'd4'}", "no engine"),
        (MINIMAL + "scheduler: {type: k8s}", "local, ray, slurm"),
        (MINIMAL + "workflow: a.B", "RLVRWorkflow"),
    ],
)
def test_a_bad_file_is_refused_with_its_reason(write, text: str, said: str) -> None:
    assert said in refusal(write(text))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("gconfig.temperature", "expected key.path=value"),
        ("=3", "expected key.path=value"),
        ("a..b=3", "expected key.path=value"),
        ("gconfig.temprature=1", "did you mean gconfig.temperature?"),
        ("temperature=1", "did you mean gconfig.temperature?"),
        ("gconfg.n_samples=1", "did you mean gconfig?"),
        ("+gconfig.n_samples=1", "did you mean gconfig?"),
        ("actor.optimzer.lr=1", "did you mean actor.optimizer?"),
        ("tournament.rounds=1", "there is no such key"),
        ("gconfig.temperature.deep=1", "not a section"),
        ("gconfig.stop='a", "not valid YAML"),
        ("gconfig=3", "expected a section"),
        ("seed=${seed}", "ecursive"),
        ("actor.target_modules.3=x", "not one of the list's 1 entries"),
    ],
)
def test_a_bad_override_is_refused_with_its_reason(write, override: str, said: str) -> None:
    text = "actor: {path: ckpt, target_modules: [a]}\nvalid_dataset: {path: d}\ngconfig: {temperature: 1.0}\n"
    message = refusal(write(text), override)
    assert said in message
    assert override.split("=")[0].split(".")[0] in message


def test_all_errors_are_shown_together(write) -> None:
    message = refusal(write(MINIMAL + "gconfig: {n_samples: 0, tmperature: 1}\nseed: -1\n"), "abc", "gconfig.top_p=2")
    assert "5 problems" in message
    for said in ("gconfig.n_samples = 0 (", "gconfig.temperature?", "seed = -1", "'abc'", "override gconfig.top_p=2"):
        assert said in message


@pytest.mark.parametrize(
    ("actor", "others", "said"),
    [
        ("{path: '???'}", "", "still to be filled in"),
        ("{path: '${nowhere.x}'}", "", "no key 'nowhere.x'"),
        ("{}", "", "actor.path is missing"),
        ("{path: '${oc.env:HF_TOKEN}'}", "", "HF_TOKEN"),
        ("{path: null}", "", "expected text"),
        ("{path: ''}", "", "not empty"),
        ("{path: [a]}", "", "expected text"),
        ("{}", "ref: {path: '${actor.path}'}\ntrial_name: ${ref.path}\n", "actor.path is missing"),
    ],
)
def test_a_wrong_value_is_blamed_on_its_key_not_on_those_that_refer_to_it(write, actor: str, others: str, said: str):
    text = f"actor: {actor}\nvalid_dataset: {{path: d, name: '${{actor.path}}'}}\ntokenizer_path: ${{actor.path}}\n"
    message = refusal(write(text + others))
    assert message.startswith("actor.path")
    assert said in message
    assert "problems" not in message


def test_a_text_with_two_references_is_blamed_on_the_wrong_one(write) -> None:
    text = "actor: {path: 'm-${seed}'}\nvalid_dataset: {path: d}\ntrial_name: '${actor.path}-${nowhere}'\n"
    assert refusal(write(text)).startswith("trial_name = ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "near.yaml").write_text("a: 1")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    assert "near.yaml" in refusal(tmp_path / "absent.yaml")
    assert "no such file" in refusal(tmp_path / "no/such/folder.yaml")
    assert "is a folder" in refusal(tmp_path)
    assert "not UTF-8" in refusal(tmp_path / "latin.yaml")
    assert "cannot be read" in refusal(tmp_path / ("x" * 300))


def test_aliases_that_multiply_are_refused(write) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "aliases" in refusal(write("\n".join(lines)))


# --- showing ----------------------------------------------------------------------------------------------------------
