"""Credentials stay out of messages, and out of the configuration that is printed and stored."""

import pytest

from schemas.config import config_to_yaml, load_config
from schemas.errors import ConfigError, MilepostError

MINIMAL = "actor: {path: ckpt}\nvalid_dataset: {path: d.jsonl}\n"
CREDENTIAL = "T00000000/B00000000/abcdefghijklmnop"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"https://hooks.slack.com/services/{CREDENTIAL}", "hooks.slack.com"),
        (f"https://discord.com/api/webhooks/{CREDENTIAL}", "discord.com"),
        (f"https://api.telegram.org/bot{CREDENTIAL}/send", "api.telegram.org"),
        ("mailtos://me:abcdefghijklmnop@example.org?to=a", "mailtos://"),
        ("postgresql://u:abcdefghijklmnop@db/x", "@db/x"),
        ("hf_abcdefghijklmnopqrst is wrong", "is wrong"),
        ("token=abcdefghijklmnop&x=1", "token="),
        ("xoxb-1234-abcdefghijklmnop", ""),
        ("api_key: 'abcdefghijklmnop'", "api_key"),
    ],
)
def test_a_credential_is_not_in_the_message(text: str, kept: str) -> None:
    message = str(MilepostError(f"alerts.slack = {text!r}: not allowed"))
    assert "abcdefghijklmnop" not in message
    assert kept in message


@pytest.mark.parametrize(
    "text",
    [
        "rows 1 and 4: token 7 differs",
        "/home/me/sk-models/run",
        "https://example.org/a@b",
        "max_tokens: 4096",
        "s3://b/k",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert str(MilepostError(text)) == text


@pytest.mark.parametrize(
    "override",
    [f"alerts.slack=https://hooks.slack.com/services/{CREDENTIAL}", f"alerts.slac.k=https://hooks.slack.com/services/{CREDENTIAL}"],
)  # fmt: skip
def test_a_misplaced_address_is_not_echoed(tmp_path, override: str) -> None:
    (tmp_path / "eval.yaml").write_text(MINIMAL)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "eval.yaml", [override])
    assert "abcdefghijklmnop" not in str(caught.value)
    assert "alerts.slac" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "experiment_name: ${oc.env:HF_TOKEN}\n",
        "trial_name: 'a-${oc.env:WANDB_API_KEY}'\n",
        "trial_name: ${oc.env:HF_TOKEN,none}\n",
        "notes: {who: '${oc.env:HF_TOKEN}'}\ntrial_name: ${notes.who}\n",
        "trial_name: '${oc.env:${notes}}'\nnotes: HF_TOKEN\n",
        "trial_name: ${oc.decode:${oc.env:HF_TOKEN}}\n",
        "scheduler: {slurm: {env: {T: '${oc.env:HF_TOKEN}'}}}\n",
        "trial_name: ${oc.env:SECRET_NAME}\n",
        "trial_name: '${oc.${notes}:HF_TOKEN}'\nnotes: env\n",
        "trial_name: '${${notes}.env:HF_TOKEN}'\nnotes: oc\n",
        "trial_name: '${oc.${notes}:HF_TOKEN,none}'\nnotes: env\n",
        "trial_name: '${oc.decode:\"${notes.a}${notes.b}\"}'\nnotes: {a: '\\${oc.en', b: 'v:HF_TOKEN}'}\n",
    ],
)
def test_a_secret_of_the_environment_is_refused(tmp_path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "SECRET_NAME"):
        monkeypatch.setenv(name, "abcdefghijklmnop")
    (tmp_path / "eval.yaml").write_text(MINIMAL + text)
    with pytest.raises(ConfigError, match=r"would put the value of .* into what is printed and stored") as caught:
        load_config(tmp_path / "eval.yaml")
    assert "abcdefghijklmnop" not in str(caught.value)


def test_a_variable_that_names_a_place_is_read(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_DIR", "/data")
    monkeypatch.setenv("HF_TOKEN", "abcdefghijklmnop")
    text = "notes: '${oc.env:HF_TOKEN}'\ncluster: {fileroot: '${oc.env:DATA_DIR}/out'}\n"  # nobody reads notes
    (tmp_path / "eval.yaml").write_text(MINIMAL + text)
    config = load_config(tmp_path / "eval.yaml", ["seed=${oc.env:RUN_SEED,3}"])
    assert (config.cluster.fileroot, config.seed) == ("/data/out", 3)
    assert "abcdefghijklmnop" not in config_to_yaml(config)
