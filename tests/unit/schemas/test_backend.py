"""The backend grammar: what it takes, what it refuses and how it says so."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.backend import BACKEND_PATTERN, ENGINES, MAX_DIMENSION, Backend, parse_backend
from schemas.errors import ConfigError

sizes = st.integers(1, MAX_DIMENSION)
names = st.none() | st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,10}", fullmatch=True)
backends = st.builds(
    Backend,
    engine=st.sampled_from(ENGINES),
    name=names,
    data_parallel=sizes,
    tensor_parallel=sizes,
    pipeline_parallel=sizes,
)


def test_the_example_of_the_documentation() -> None:
    backend = parse_backend("sglang:d12p1t2")
    assert (backend.engine, backend.name) == ("sglang", None)
    assert (backend.data_parallel, backend.tensor_parallel, backend.pipeline_parallel) == (12, 2, 1)
    assert backend.gpus_per_replica == 2


def test_omitted_dimensions_are_one() -> None:
    assert parse_backend("vllm:t2") == Backend(engine="vllm", tensor_parallel=2)
    assert parse_backend("vllm:t2p3").gpus_per_replica == 6


def test_a_name_in_brackets_is_kept() -> None:
    backend = parse_backend("vllm[rollout-1]:d4")
    assert backend.name == "rollout-1"
    assert str(backend) == "vllm[rollout-1]:d4"


@given(backends)
def test_the_canonical_form_parses_to_an_equal_backend(backend: Backend) -> None:
    assert parse_backend(str(backend)) == backend
    assert str(parse_backend(str(backend))) == str(backend)
    assert re.search(BACKEND_PATTERN, str(backend))


@pytest.mark.parametrize(
    "text", ["vllm:banana", "vllm:d0", "vllm:d2d3", "d4", "vllm", "vllm:d01", "vlm:d1", "vllm:d2 "]
)
def test_a_form_refuses_what_the_parser_refuses(text: str) -> None:
    assert not re.search(BACKEND_PATTERN, text)
    with pytest.raises(ConfigError):
        parse_backend(text)


@given(sizes, sizes, sizes, st.permutations(["d", "t", "p"]))
def test_the_order_of_dimensions_does_not_matter(d: int, t: int, p: int, order: list[str]) -> None:
    size = {"d": d, "t": t, "p": p}
    shuffled = parse_backend("vllm:" + "".join(f"{letter}{size[letter]}" for letter in order))
    assert shuffled == parse_backend(f"vllm:d{d}t{t}p{p}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm:d0", "'d0'"),
        ("vllm:d2d3", "given twice"),
        ("d4", "write for instance vllm:d4"),
        ("d4p1t1", "write for instance vllm:d4p1t1"),
        ("sglang:e2d4", "'e'"),
        ("vllm:d01", "leading zeros"),
        ("", "no colon"),
        (":d4", "no engine ''"),
        ("vllm", "no colon"),
        ("vllm:", "no dimension follows"),
        ("vllm:d", "'d'"),
        ("vllm:4", "'4' is not a dimension"),
        ("vllm:d-1", "'d'"),
        ("vllm:d1.5", "'.5' is not a dimension"),
        ("vllm: d1", "' d1' is not a dimension"),
        ("vllm:d1 ", "' ' is not a dimension"),
        ("vllm:D1", "'D'"),
        ("vllm:d٣", "'d'"),
        ("vllm:d1+fsdp:d1", "'+fsdp:d1' is not a dimension"),
        (f"vllm:d{MAX_DIMENSION + 1}", str(MAX_DIMENSION)),
        ("vllm:d" + "9" * 10_000, "from 1 to"),
        ("vlm:d1", "did you mean 'vllm'?"),
        ("VLLM:d1", "did you mean 'vllm'?"),
        ("fsdp:d4", "no engine 'fsdp'"),
        ("vllm[]:d1", "name ''"),
        ("vllm[a b]:d1", "name 'a b'"),
        ("vllm[a:d1", "not an engine"),
        ("vllm]a[:d1", "not an engine"),
        ("vllm.d4", "write vllm:d4"),
    ],
)
def test_a_refusal_says_what_was_seen_and_what_to_do(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_backend(text)
    message = str(caught.value)
    assert said in message
    assert text[:20] in message
    assert "write" in message
    assert len(message) < 400
    assert caught.value.exit_code == 2


VALID = re.compile(rf"({'|'.join(ENGINES)})(\[[A-Za-z_][A-Za-z0-9_.-]*\])?:(?:[dtp][1-9][0-9]{{0,4}})+")


@given(backends, st.data())
def test_a_mutated_backend_parses_only_if_it_is_still_of_the_grammar(backend: Backend, data: st.DataObject) -> None:
    text = str(backend)
    at = data.draw(st.integers(0, len(text)))
    text = (
        text[:at]
        + data.draw(st.sampled_from(["", "0", "d", "t", "p", "e", ":", "[", "]", " ", "é", "\n"]))
        + text[at + data.draw(st.integers(0, 1)) :]
    )
    letters = re.findall(r"[dtp](?=[0-9])", text.rpartition(":")[2])
    is_valid = bool(VALID.fullmatch(text)) and len(set(letters)) == len(letters)
    is_valid = is_valid and all(int(n) <= MAX_DIMENSION for n in re.findall(r"[0-9]+", text.rpartition(":")[2]))
    if is_valid:
        assert parse_backend(str(parse_backend(text))) == parse_backend(text)
    else:
        with pytest.raises(ConfigError):
            parse_backend(text)


@given(st.text(max_size=40))
def test_any_other_text_is_refused_by_a_config_error(text: str) -> None:
    if not VALID.fullmatch(text):
        with pytest.raises(ConfigError):
            parse_backend(text)
