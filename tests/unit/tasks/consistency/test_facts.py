"""What each replica loaded: one that differs is named, from the plan where it says, else from the majority."""

from typing import Any

import pytest

from schemas.consistency import ConsistencyCheck, WorkerName
from schemas.inference import EngineFacts, Plan
from schemas.sampling import SamplingSpec
from tasks.consistency.facts import compare_facts

SAMPLING = SamplingSpec(temperature=1.0, top_p=1.0, top_k=-1, max_new_tokens=8, eos_token_ids=(2,))
PLAN = Plan(
    plan_key="k",
    seed=1,
    n_samples=1,
    engine="vllm",
    dtype="bfloat16",
    weight_digest="w",
    tokenizer_digest="t",
    chat_template_digest="c",
    dataset="d",
    dataset_version="v",
    sampling=SAMPLING,
    max_model_len=64,
    items=(),
)
FACTS = EngineFacts(
    engine="vllm",
    versions={"vllm": "0.32", "torch": "2.13", "python": "3.11"},
    device="H100",
    device_count=1,
    dtype="bfloat16",
    max_model_len=64,
    weight_sample="sample",
    tokenizer_digest="t",
    chat_template_digest="c",
    sampling=SAMPLING,
)


def compare(*changes: dict[str, Any], plan: Plan = PLAN, weights: str | None = "sample") -> dict[str, ConsistencyCheck]:
    facts = {
        WorkerName(replica=number, attempt=each.pop("attempt", 1)): FACTS.model_copy(update=each)
        for number, each in enumerate(dict(change) for change in changes)
    }
    return {check.check: check for check in compare_facts(facts, plan, weight_sample=weights)}


def violated(checks: dict[str, ConsistencyCheck]) -> dict[str, list[int]]:
    return {
        name: [worker.replica for worker in check.suspects]
        for name, check in checks.items()
        if check.outcome == "violated"
    }


def test_equal_facts_pass() -> None:
    checks = compare({}, {}, {})
    assert {check.outcome for check in checks.values()} == {"passed"}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"weight_sample": "other"}, "weights"),
        ({"engine": "transformers"}, "engine"),
        ({"dtype": "float16"}, "dtype"),
        ({"tokenizer_digest": "other"}, "tokenizer"),
        ({"chat_template_digest": "other"}, "chat_template"),
        ({"sampling": SAMPLING.model_copy(update={"temperature": 0.5})}, "sampling"),
        ({"versions": {"vllm": "0.31"}}, "versions"),
        ({"device": "A100"}, "device"),
    ],
)
def test_the_replica_that_differs_is_named(change: dict[str, Any], name: str) -> None:
    checks = compare({}, change, {})
    assert violated(checks) == {name: [1]}
    assert "replica 1 of attempt 1" in checks[name].message
    assert checks[name].decides == (name != "device")


def test_what_the_plan_knows_names_the_wrong_one_of_two() -> None:
    assert violated(compare({}, {"dtype": "float16"})) == {"dtype": [1]}
    assert violated(compare({}, {"weight_sample": "other"})) == {"weights": [1]}


def test_without_a_plan_to_tell_both_of_two_are_named() -> None:
    auto = PLAN.model_copy(update={"dtype": "auto"})
    assert violated(compare({}, {"dtype": "float16"}, plan=auto)) == {"dtype": [0, 1]}
    assert violated(compare({}, {"weight_sample": "other"}, weights=None)) == {"weights": [0, 1]}


def test_versions_may_change_between_attempts_but_not_within_one() -> None:
    new = {"versions": {"vllm": "0.33"}}
    assert violated(compare({}, {}, {**new, "attempt": 2}, {**new, "attempt": 2})) == {}
    assert violated(compare({}, {}, {}, {"attempt": 2}, {**new, "attempt": 2}))["versions"] == [3, 4]


def test_what_is_unknown_is_not_compared() -> None:
    assert compare({"weight_sample": None}, {"weight_sample": None})["weights"].outcome == "cannot_tell"
    assert violated(compare({"weight_sample": None}, {}, {})) == {}


def test_a_missing_package_is_no_other_version() -> None:
    assert violated(compare({"versions": {"python": "3.11"}}, {"versions": {"python": "3.12"}})) == {}
