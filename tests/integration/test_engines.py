"""The contract that every engine keeps, on the real model in fp32, where neighbours in the batch change no text."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from infra.checkpoints.class_comparison import ClassComparison
from schemas.inference import EngineName, EngineSpec
from schemas.sampling import SamplingSpec
from tests.support.damaged_checkpoints import DAMAGES, FAMILIES, QUANTISED, lost_projection, make_damaged, make_families
from tests.support.engine_driver import Answer, Answers, Prompt, Round, Scenario
from tests.support.engine_environment import (
    CHECKPOINT,
    ENGINE_PYTHON,
    IM_END,
    chat_token_ids,
    decode,
    engine_process_environment,
    require_engine,
)

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(1500)]

ENGINES: tuple[EngineName, ...] = ("vllm", "transformers")
QUESTIONS = ("What is 2 + 2?", "Name three colours.", "Count from 1 to 9.", "Who wrote Hamlet?", "Say hello.")
MAX_MODEL_LEN = 192
STOP = "er of wa"
"""Inside what the model says of counting, and across three of its tokens."""
PENALTIES = {
    "all penalties": {
        "repetition_penalty": 1.3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.7,
        "max_new_tokens": 24,
    },
    "repetition": {"repetition_penalty": 0.7, "max_new_tokens": 24},
    "frequency": {"frequency_penalty": -2.0, "max_new_tokens": 24},
    "presence": {"presence_penalty": 2.0, "max_new_tokens": 24},
}
CUTS = range(4, 9)
"""Completion lengths that end inside the characters of several tokens each."""


def sampling(**changes: Any) -> SamplingSpec:
    base = SamplingSpec(temperature=0.0, top_p=1.0, top_k=-1, max_new_tokens=12, eos_token_ids=(IM_END,))
    return base.model_copy(update=changes)


def prompts(questions: tuple[str, ...] = QUESTIONS, *, seed: int = 0) -> tuple[Prompt, ...]:
    return tuple(Prompt(request_id=text, token_ids=chat_token_ids(text), seed=seed) for text in questions)


def repeats(question: str, count: int) -> tuple[Prompt, ...]:
    ids = chat_token_ids(question)
    return tuple(Prompt(request_id=str(seed), token_ids=ids, seed=2**62 + seed) for seed in range(count))


def scenario(engine: EngineName) -> Scenario:
    spec = EngineSpec(
        engine=engine, model_path=CHECKPOINT, dtype="float32", max_model_len=MAX_MODEL_LEN, batch_size=16, seed=1
    )
    hot = sampling(temperature=1.0)
    bad = (
        Prompt(request_id="too long", token_ids=[300] * (MAX_MODEL_LEN + 1)),
        Prompt(request_id="empty", token_ids=[]),
        Prompt(request_id="unknown token", token_ids=[10**6]),
        Prompt(request_id="good", token_ids=chat_token_ids("Say hello.")),
    )
    emoji = prompts(("Repeat exactly: 🙂🙃🙂🙃 你好，世界",))
    # the later ones share the engine, which takes a step for all of them at once and lets some of them wait
    together = (
        Round(name="greedy in another order", sampling=sampling(), prompts=prompts(QUESTIONS[::-1])),
        Round(name="long enough", sampling=sampling(max_new_tokens=40), prompts=prompts(QUESTIONS[:1])),
        Round(name="at least", sampling=sampling(max_new_tokens=40, min_new_tokens=30), prompts=prompts(QUESTIONS[:1])),
        Round(name="no stop", sampling=sampling(max_new_tokens=24), prompts=prompts(QUESTIONS[2:3])),
        Round(name="stop", sampling=sampling(stop=("!!", STOP), max_new_tokens=24), prompts=prompts(QUESTIONS[2:3])),
        Round(name="unicode", sampling=sampling(max_new_tokens=24), prompts=emoji),
        *(Round(name=f"cut {n}", sampling=sampling(max_new_tokens=n), prompts=emoji) for n in CUTS),
        Round(name="top 1", sampling=sampling(temperature=1.0, top_k=1), prompts=prompts(seed=9)),
        Round(name="tiny nucleus", sampling=sampling(temperature=1.0, top_p=1e-6), prompts=prompts(seed=9)),
        Round(name="one likely", sampling=sampling(temperature=1.0, min_p=1.0), prompts=prompts(seed=9)),
        *(Round(name=name, sampling=sampling(**changes), prompts=prompts()) for name, changes in PENALTIES.items()),
        Round(
            name="logprobs",
            sampling=sampling(),
            prompts=(Prompt(request_id="asked", token_ids=chat_token_ids(QUESTIONS[0]), with_logprobs=True),),
        ),
        Round(name="bad", sampling=sampling(max_new_tokens=4), prompts=bad),
    )
    rounds = (
        Round(name="greedy", sampling=sampling(), prompts=prompts()),
        Round(name="hot", sampling=hot, prompts=repeats(QUESTIONS[1], 4)),
        Round(name="hot alone", sampling=hot, prompts=repeats(QUESTIONS[1], 2)[1:]),
        Round(name="hot among others", sampling=hot, prompts=prompts(seed=5)[2:] + repeats(QUESTIONS[1], 2)[1:]),
        *(part.model_copy(update={"joins_previous": number > 0}) for number, part in enumerate(together)),
    )
    return Scenario(engine=spec, num_threads=1, rounds=rounds)


@pytest.fixture(scope="session")
def play(tmp_path_factory: pytest.TempPathFactory) -> Callable[[EngineName], Answers]:
    """Return the answers of an engine; each engine is loaded once per test session."""
    known: dict[EngineName, Answers | str] = {}

    def play(engine: EngineName) -> Answers:
        require_engine()
        if engine not in known:
            folder: Path = tmp_path_factory.mktemp(engine)
            headers = make_families(folder) if engine == "transformers" else ()
            damaged = make_damaged(folder, CHECKPOINT, with_quantised=engine == "vllm")
            played = scenario(engine).model_copy(update={"damaged": damaged, "headers": headers})
            (folder / "scenario.json").write_text(played.model_dump_json())
            command = [ENGINE_PYTHON, "-m", "tests.support.engine_driver", "scenario.json", "answers.json"]
            done = subprocess.run(
                command, cwd=folder, env=engine_process_environment(), capture_output=True, text=True, check=False
            )
            answers = folder / "answers.json"
            known[engine] = Answers.model_validate_json(answers.read_bytes()) if answers.exists() else done.stderr
        found = known[engine]
        assert isinstance(found, Answers), found[-4000:]
        return found

    return play


@pytest.fixture(params=ENGINES)
def answers(request: pytest.FixtureRequest, play: Callable[[EngineName], Answers]) -> Answers:
    return play(request.param)


def texts(answers: Answers, name: str) -> dict[str, str]:
    return {key: answer.text for key, answer in answers.rounds[name].items()}


def only(answers: Answers, name: str) -> Answer:
    (answer,) = answers.rounds[name].values()
    return answer


def test_every_request_is_answered_once(answers: Answers) -> None:
    engine = answers.facts.engine
    for part in scenario(engine).rounds:
        assert set(answers.rounds[part.name]) == {prompt.request_id for prompt in part.prompts}


def test_each_token_tells_its_log_probability_where_that_is_asked(answers: Answers) -> None:
    asked = only(answers, "logprobs")
    assert asked.logprobs is not None
    assert len(asked.logprobs) == len(asked.token_ids)
    assert fmean(asked.logprobs) == pytest.approx(asked.mean_logprob)
    assert asked.token_ids == answers.rounds["greedy"][QUESTIONS[0]].token_ids
    assert all(answer.logprobs is None for answer in answers.rounds["greedy"].values())


@pytest.mark.parametrize("name", DAMAGES)
def test_weights_that_are_not_those_of_the_class_are_refused_by_name(answers: Answers, name: str) -> None:
    tensor, _ = DAMAGES[name]
    is_joined = answers.facts.engine == "vllm" and name == "without-q"
    assert ("qkv_proj" if is_joined else tensor.split(".")[-2]) in answers.refusals[name]


def test_quantised_weights_that_are_missing_are_named(play: Callable[[EngineName], Answers]) -> None:
    assert "missing: model.norm.weight" in play("vllm").refusals[QUANTISED]


@pytest.mark.parametrize("family", FAMILIES)
def test_headers_are_compared_with_the_class_of_their_family(
    play: Callable[[EngineName], Answers], family: str
) -> None:
    found = play("transformers").comparisons
    for kind in ("whole", "quantised"):
        assert found[f"{family}: {kind}"] == ClassComparison(model_class=FAMILIES[family]["config"]["architectures"][0])
    lost = lost_projection(family).split(".")[-2]
    for kind in ("without", "quantised, without"):
        comparison = found[f"{family}: {kind}"]
        assert comparison.missing
        assert not comparison.unexpected
        assert lost in " ".join(comparison.missing)


def test_greedy_text_does_not_depend_on_order_or_neighbours(answers: Answers) -> None:
    assert texts(answers, "greedy") == texts(answers, "greedy in another order")


def test_a_seed_decides_its_sample_whatever_shares_the_batch(answers: Answers) -> None:
    alone = answers.rounds["hot alone"]["1"]
    assert alone.token_ids == answers.rounds["hot"]["1"].token_ids
    assert alone.token_ids == answers.rounds["hot among others"]["1"].token_ids


def test_repeats_with_seeds_of_their_own_differ_at_temperature_one(answers: Answers) -> None:
    assert len({answer.token_ids for answer in answers.rounds["hot"].values()}) == 4


@pytest.mark.parametrize("name", ["top 1", "tiny nucleus", "one likely"])
def test_sampling_among_one_candidate_is_greedy(answers: Answers, name: str) -> None:
    assert texts(answers, name) == texts(answers, "greedy")


def test_a_stop_string_ends_the_text_and_is_not_part_of_it(answers: Answers) -> None:
    answer, unstopped = only(answers, "stop"), only(answers, "no stop")
    assert answer.finish_reason == "stop"
    assert answer.text == unstopped.text[: unstopped.text.index(STOP)]
    assert answer.token_ids == unstopped.token_ids[: len(answer.token_ids)]
    assert len(answer.token_ids) < len(unstopped.token_ids)


def test_an_eos_token_ends_with_stop_and_is_counted(answers: Answers) -> None:
    answer = only(answers, "long enough")
    assert answer.finish_reason == "stop"
    assert answer.token_ids[-1] == IM_END
    assert answer.text == decode(answer.token_ids)


def test_min_new_tokens_holds_the_end_back(answers: Answers) -> None:
    assert len(only(answers, "long enough").token_ids) < 30 <= len(only(answers, "at least").token_ids)


def test_the_length_limit_ends_with_length(answers: Answers) -> None:
    answer = only(answers, "no stop")
    assert (answer.finish_reason, len(answer.token_ids)) == ("length", 24)


def test_text_is_whole_characters_only(answers: Answers) -> None:
    whole = only(answers, "unicode")
    assert any(ord(character) > 0x2000 for character in whole.text), whole.text
    for name in ("unicode", *(f"cut {n}" for n in CUTS)):
        answer = only(answers, name)
        assert "\ufffd" not in answer.text
        decoded = decode(answer.token_ids)
        assert decoded.startswith(answer.text)
        # a token may hold a space and the first bytes of a character: both wait for the rest
        assert not decoded[len(answer.text) :].strip(" \ufffd")
    assert any("\ufffd" in decode(only(answers, f"cut {n}").token_ids) for n in CUTS), "no cut met a character"


def test_a_refused_request_names_its_numbers_and_harms_no_other(answers: Answers) -> None:
    bad = answers.rounds["bad"]
    assert str(MAX_MODEL_LEN + 1) in bad["too long"].refused
    assert bad["empty"].refused
    assert bad["unknown token"].refused
    assert bad["good"].token_ids


def test_the_facts_name_versions_device_and_dtype(answers: Answers) -> None:
    facts = answers.facts
    assert {facts.engine, "torch", "python"} <= set(facts.versions)
    assert facts.device
    assert (facts.device_count, facts.dtype, facts.max_model_len) == (0, "float32", MAX_MODEL_LEN)


def test_logprob_and_latency_are_told(answers: Answers) -> None:
    for name in ("greedy", "hot"):
        for answer in answers.rounds[name].values():
            assert answer.mean_logprob is not None
            assert answer.mean_logprob < 0
            assert 0 < answer.latency_s < 300


def test_every_pass_is_counted(answers: Answers) -> None:
    lengths = [len(answer.token_ids) for part in answers.rounds.values() for answer in part.values()]
    assert max(lengths) <= answers.num_passes <= 2 * sum(lengths)


def test_engines_agree_on_greedy_text_and_logprobs(play: Callable[[EngineName], Answers]) -> None:
    first, second = (play(engine).rounds for engine in ENGINES)
    for name in ("greedy", "stop", "long enough", "unicode"):
        for key, answer in first[name].items():
            other = second[name][key]
            assert (answer.text, answer.token_ids, answer.finish_reason) == (
                other.text,
                other.token_ids,
                other.finish_reason,
            )
            assert answer.mean_logprob == pytest.approx(other.mean_logprob, abs=1e-3)


@pytest.mark.parametrize("name", PENALTIES)
def test_engines_agree_on_what_penalties_do(play: Callable[[EngineName], Answers], name: str) -> None:
    by_engine = [play(engine).rounds for engine in ENGINES]
    ids = [{key: answer.token_ids for key, answer in rounds[name].items()} for rounds in by_engine]
    assert ids[0] == ids[1]
    for rounds in by_engine:
        assert any(answer.token_ids[:12] != rounds["greedy"][key].token_ids for key, answer in rounds[name].items())


def test_only_transformers_knows_the_entropy_and_it_is_not_negative(play: Callable[[EngineName], Answers]) -> None:
    assert only(play("vllm"), "unicode").entropy is None
    entropy = only(play("transformers"), "unicode").entropy
    assert entropy is not None
    assert 0 <= entropy < 11, "log of the vocabulary is 10.8 nats"
