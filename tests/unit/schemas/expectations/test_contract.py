"""The rules that follow from a profile."""

from schemas.expectations.contract import DatasetProfile, build_contract


def profile(**changes: object) -> DatasetProfile:
    facts = {"min_prompt_length": 10, "max_prompt_length": 300, "has_answers": True, "value_sets": {}} | changes
    return DatasetProfile.model_validate(facts)


def test_lengths_keep_a_factor_of_two() -> None:
    (rule,) = [rule for rule in build_contract(profile()) if rule.kind == "text_length"]
    assert (rule.low, rule.high) == (5, 600)
    (rule,) = [rule for rule in build_contract(profile(min_prompt_length=0)) if rule.kind == "text_length"]
    assert rule.low == 1, "an empty prompt asks nothing"


def test_only_what_the_reference_has_is_asked_for() -> None:
    names = {rule.name for rule in build_contract(profile(value_sets={"subset:level": ("1", "2")}))}
    assert {"answer is set", "answer can be graded", "subset:level has a known value"} <= names
    assert not {rule.name for rule in build_contract(profile(has_answers=False))} & {
        "answer is set",
        "answer can be graded",
    }
