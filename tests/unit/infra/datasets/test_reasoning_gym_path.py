"""Paths of procedural tasks are taken apart without the library."""

from collections.abc import Mapping

import pytest

from infra.datasets.sources.procedural_draw import DrawRequest, assign_parameters
from infra.datasets.sources.reasoning_gym_tasks import DEFAULT_SIZE, parse_path
from schemas.errors import DatasetError

DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "sums": {"max_terms": 6, "ratio": 0.5, "negative": False, "signs": ("+", "-"), "word": "a", "font": None},
    "words": {"max_words": 3, "ratio": 0.1, "names": ["x"]},
}


def test_a_path_names_tasks_size_seed_and_parameters() -> None:
    assert parse_path(
        "reasoning_gym:sums+words?size=96&seed=1&sums.max_terms=2&signs=%5B%22%2B%22%5D", seed=7
    ) == DrawRequest(tasks=("sums", "words"), size=96, seed=1, parameters={"sums.max_terms": "2", "signs": '["+"]'})


def test_the_run_s_seed_is_taken_when_the_path_has_none() -> None:
    assert parse_path("reasoning_gym:sums", seed=7) == DrawRequest(
        tasks=("sums",), size=DEFAULT_SIZE, seed=7, parameters={}
    )


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("", "must name distinct tasks"),
        ("a+", "must name distinct tasks"),
        ("a+a", "must name distinct tasks"),
        ("a?size=0", r"size must be a whole number in \[1, 1000000\], got '0'"),
        ("a+b?size=1", r"\[2, 1000000\]"),
        ("a?size=two", "got 'two'"),
        ("a?size=1e9", "got '1e9'"),
        ("a?size=99999999999999999999", "size must be"),
        ("a?seed=-1", "seed must be"),
        ("a?size=1&size=2", "a parameter twice"),
        ("a?size", "must read key=value"),
    ],
)
def test_a_path_that_cannot_be_meant_is_refused(rest: str, reason: str) -> None:
    with pytest.raises(DatasetError, match=reason):
        parse_path(f"reasoning_gym:{rest}", seed=1)


def assign(parameters: dict[str, str]) -> dict[str, dict[str, object]]:
    return assign_parameters(DrawRequest(tasks=("sums", "words"), size=2, seed=1, parameters=parameters), DEFAULTS)


def test_a_parameter_goes_to_every_task_that_has_it_or_to_the_one_named() -> None:
    assert assign({"ratio": "1", "max_words": "5"}) == {"sums": {"ratio": 1.0}, "words": {"ratio": 1.0, "max_words": 5}}
    assert assign({"words.ratio": "0.25"}) == {"sums": {}, "words": {"ratio": 0.25}}


def test_values_have_the_type_of_the_default() -> None:
    parameters = {"negative": "true", "signs": '["*"]', "names": '["y", "z"]', "word": "12", "font": "block"}
    assert assign(parameters) == {
        "sums": {"negative": True, "signs": ("*",), "word": "12", "font": "block"},
        "words": {"names": ["y", "z"]},
    }


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("max_terms", "2.5", "max_terms must be of type int such as 6, got '2.5'"),
        ("max_terms", "true", "of type int"),
        ("negative", "1", "of type bool such as false"),
        ("signs", "+", "of type tuple"),
        ("max_term", "2", "did you mean 'max_terms'"),
        ("words.max_terms", "2", "has no parameter 'words.max_terms'"),
        ("zzz", "2", "Allowed: font, max_terms, max_words"),
    ],
)
def test_an_unknown_parameter_or_a_wrong_value_is_refused(key: str, text: str, reason: str) -> None:
    with pytest.raises(DatasetError, match=reason):
        assign({key: text})
