"""Keys that keep the artifacts of experiments and datasets apart."""

import re

import pytest

from infra.prefect_server.artifact_keys import artifact_key

NAMES = (
    "run1",
    "run-1",
    "run_1",
    "run.1",
    "Run-1",
    "run--1",
    "-run-1",
    "run-1\n",
    "算術",
    "算数",
    "\udce9",
    "",
    "long-" * 20,
    "long-" * 20 + "x",
)


def test_plain_names_stay_readable() -> None:
    assert artifact_key("drift", "grpo-7b", "gsm8k") == "drift-grpo-7b--gsm8k"
    assert artifact_key("replica-0", "default", "math-500") == "replica-0-default--math-500"


@pytest.mark.parametrize("name", NAMES)
def test_a_key_is_one_that_prefect_takes(name: str) -> None:
    for key in (artifact_key("summary", name, "gsm8k"), artifact_key("summary", "run1", name)):
        assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)+--[a-z0-9]+(-[a-z0-9]+)*", key), key
        assert len(key) < 100


def test_names_that_look_alike_have_keys_of_their_own() -> None:
    assert len({artifact_key("metrics", name, "gsm8k") for name in NAMES}) == len(NAMES)
    assert len({artifact_key("metrics", "run1", name) for name in NAMES}) == len(NAMES)
    pairs = [("a-b", "c"), ("a", "b-c"), ("a--b", "c"), ("a", "-b-c"), ("a-", "b-c"), ("a-b-", "c")]
    assert len({artifact_key("metrics", *pair) for pair in pairs}) == len(pairs)
