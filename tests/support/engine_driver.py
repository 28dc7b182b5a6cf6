"""Runs an engine through rounds of requests, inside the engine environment, which has no pytest.

`python -m tests.support.engine_driver SCENARIO_JSON ANSWERS_JSON [SCENARIO_JSON ANSWERS_JSON …]`
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from infra.checkpoints.class_comparison import ClassComparison
from infra.engines.base import Engine, GenerationRequest, RequestRefusedError
from infra.engines.loaded_weights import compare_with_class
from infra.engines.selection import open_engine
from schemas.base import Model
from schemas.errors import EngineError
from schemas.inference import EngineFacts, EngineSpec
from schemas.sampling import SamplingSpec


class Prompt(Model):
    """One request."""

    request_id: str
    token_ids: list[int]
    seed: int = 0
    with_logprobs: bool = False


class Round(Model):
    """Requests that are in the engine together."""

    name: str
    sampling: SamplingSpec
    prompts: tuple[Prompt, ...]
    joins_previous: bool = False
    """Whether they are in the engine together with the requests of the previous round too."""


class Scenario(Model):
    """All rounds, in order, on one loaded engine."""

    engine: EngineSpec
    num_threads: int
    rounds: tuple[Round, ...]
    damaged: tuple[Path, ...] = ()
    """Checkpoints to open when all rounds are played."""
    headers: tuple[Path, ...] = ()
    """Checkpoints to compare with their classes after that."""


class Answer(Model):
    """A Generation, or why there is none."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    finish_reason: str = ""
    mean_logprob: float | None = None
    entropy: float | None = None
    latency_s: float = 0.0
    logprobs: tuple[float, ...] | None = None
    num_broken: int = 0
    broken_at: int | None = None
    refused: str = ""


class Answers(Model):
    """Round name to request id to answer."""

    facts: EngineFacts
    rounds: dict[str, dict[str, Answer]]
    longest_step_s: float
    num_passes: int
    refusals: dict[str, str]
    """Name of a damaged checkpoint to what the engine said of it; empty where it took it."""
    comparisons: dict[str, ClassComparison]
    """Name of a checkpoint to what its headers lack."""


def play(engine: Engine, parts: Sequence[Round]) -> tuple[dict[str, dict[str, Answer]], float]:
    """Return the answers of rounds that are in the engine together, and its longest step."""
    answers: dict[str, dict[str, Answer]] = {part.name: {} for part in parts}
    longest = 0.0
    for part in parts:
        for prompt in part.prompts:
            request = GenerationRequest(
                request_id=f"{part.name}/{prompt.request_id}",
                prompt_token_ids=prompt.token_ids,
                seed=prompt.seed,
                sampling=part.sampling,
                with_logprobs=prompt.with_logprobs,
            )
            try:
                engine.add(request)
            except RequestRefusedError as exc:
                answers[part.name][prompt.request_id] = Answer(refused=str(exc))
    while engine.num_unfinished:
        began = time.monotonic()
        for generation in engine.step():
            fields = asdict(generation)
            name, _, request_id = fields.pop("request_id").partition("/")
            answers[name][request_id] = Answer(**fields)
        longest = max(longest, time.monotonic() - began)
    return answers, longest


def group(rounds: Sequence[Round]) -> list[list[Round]]:
    """Return the rounds that are in the engine together."""
    groups: list[list[Round]] = []
    for part in rounds:
        if part.joins_previous:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def open_damaged(scenario: Scenario, folder: Path) -> str:
    """Return the error with which a checkpoint is refused."""
    spec = scenario.engine.model_copy(update={"model_path": folder, "max_model_len": 32})
    try:
        open_engine(spec, scenario.rounds[0].sampling, scenario.num_threads).close()
    except EngineError as exc:
        return str(exc)
    return ""


def main() -> None:
    """Play one scenario after another, each on an engine of its own, and write the answers."""
    for scenario, answers in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        play_scenario(Path(scenario), Path(answers))


def play_scenario(path: Path, answers_path: Path) -> None:
    """Play a scenario and write the answers."""
    scenario = Scenario.model_validate_json(path.read_bytes())
    engine = open_engine(scenario.engine, scenario.rounds[0].sampling, scenario.num_threads)
    rounds: dict[str, dict[str, Answer]] = {}
    longest = 0.0
    for parts in group(scenario.rounds):
        answers, step_s = play(engine, parts)
        rounds |= answers
        longest = max(longest, step_s)
    facts, num_passes = engine.facts, engine.num_passes
    engine.close()
    refusals = {folder.name: open_damaged(scenario, folder) for folder in scenario.damaged}
    comparisons = {
        folder.name: compare_with_class(folder, sorted(folder.glob("*.safetensors"))) for folder in scenario.headers
    }
    document = Answers(
        facts=facts,
        rounds=rounds,
        longest_step_s=longest,
        num_passes=num_passes,
        refusals=refusals,
        comparisons=comparisons,
    )
    answers_path.write_text(document.model_dump_json())


if __name__ == "__main__":
    main()
