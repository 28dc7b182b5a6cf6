"""A real LoRA adapter: both engines write with it what the merged model writes, and its evaluation is published."""

import subprocess
from pathlib import Path

import pytest

from infra.checkpoints import inspect_checkpoint
from infra.store import open_store
from schemas.inference import AdapterSpec, EngineName, EngineSpec
from schemas.sampling import SamplingSpec
from tests.support.engine_driver import Answer, Answers, Prompt, Round, Scenario
from tests.support.engine_environment import (
    CHECKPOINT,
    ENGINE_PYTHON,
    IM_END,
    chat_token_ids,
    engine_process_environment,
    require_engine,
)
from tests.support.evaluation_commands import CONFIG, SUMS, Command, own_cores, samples_of

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(1200)]

QUESTIONS = ("Name three colours.", "Count from 1 to 9.", "Who wrote Hamlet?")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `adapter` and `merged`."""
    require_engine()
    folder = tmp_path_factory.mktemp("lora")
    command = [ENGINE_PYTHON, "-m", "tests.support.adapter_maker", CHECKPOINT, folder]
    done = subprocess.run(command, env=engine_process_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def scenario(engine: EngineName, model: Path, adapter: Path | None = None) -> Scenario:
    """The questions to an engine, greedily, in fp32."""
    report = None if adapter is None else inspect_checkpoint(adapter)
    if report is not None:
        assert report.status == "complete", report.problems
    spec = EngineSpec(
        engine=engine,
        model_path=model,
        adapter=report
        and AdapterSpec(path=report.path, max_rank=report.adapter.max_rank if report.adapter is not None else 0),
        dtype="float32",
        max_model_len=128,
        batch_size=4,
        seed=1,
    )
    sampling = SamplingSpec(temperature=0.0, top_p=1.0, top_k=-1, max_new_tokens=16, eos_token_ids=(IM_END,))
    prompts = tuple(Prompt(request_id=text, token_ids=chat_token_ids(text)) for text in QUESTIONS)
    return Scenario(engine=spec, num_threads=1, rounds=(Round(name="greedy", sampling=sampling, prompts=prompts),))


def play(folder: Path, **scenarios: Scenario) -> dict[str, dict[str, Answer]]:
    """Return what is answered in each scenario, all of them in one process."""
    words: list[str] = []
    for name, each in scenarios.items():
        (folder / f"{name}.json").write_text(each.model_dump_json())
        words += [f"{name}.json", f"{name}.answers.json"]
    command = [ENGINE_PYTHON, "-m", "tests.support.engine_driver", *words]
    done = subprocess.run(
        command, cwd=folder, env=engine_process_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {
        name: Answers.model_validate_json((folder / f"{name}.answers.json").read_bytes()).rounds["greedy"]
        for name in scenarios
    }


@pytest.fixture(scope="module")
def written(made: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Answer]]:
    """What transformers writes; test_engines.py shows that vLLM writes the same with a checkpoint."""
    return play(
        tmp_path_factory.mktemp("transformers"),
        plain=scenario("transformers", CHECKPOINT),
        merged=scenario("transformers", made / "merged"),
        adapted=scenario("transformers", CHECKPOINT, made / "adapter"),
    )


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_an_engine_writes_with_an_adapter_what_the_merged_model_writes(
    made: Path, written: dict[str, dict[str, Answer]], tmp_path: Path, engine: EngineName
) -> None:
    plain, expected, own = (written[name] for name in ("plain", "merged", "adapted"))
    if engine == "vllm":
        own = play(tmp_path, adapted=scenario(engine, CHECKPOINT, made / "adapter"))["adapted"]
    for question in QUESTIONS:
        assert own[question].token_ids == expected[question].token_ids
        assert own[question].mean_logprob == pytest.approx(expected[question].mean_logprob, abs=1e-3)
        assert own[question].token_ids != plain[question].token_ids


@pytest.mark.needs_prefect
def test_an_adapter_is_evaluated_on_its_base_and_the_run_says_so(
    environment: dict[str, str], api: str, made: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    arguments = [
        "evaluate",
        str(tmp_path / "config.yaml"),
        f"actor.path={made / 'adapter'}",
        f"cluster.fileroot={tmp_path / 'out'}",
        "rollout.backend=transformers:d2",
        f"valid_dataset.path={SUMS}",
        "valid_dataset.limit=4",
        "gconfig.max_new_tokens=8",
    ]
    summary = Command(tmp_path, arguments, environment | {"PREFECT_API_URL": api}, cores=own_cores()).summary()
    assert summary.base_checkpoint == str(CHECKPOINT)
    assert summary.consistency == "agree"
    assert samples_of(summary).num_rows == 8
    (row,) = open_store(tmp_path / "out").table("runs").to_table().to_pylist()
    assert row["base_checkpoint"] == str(CHECKPOINT)
    assert "LoRA adapter on" in (summary.run_dir / "report.html").read_text("utf-8")
    shards = open_store(tmp_path / "out").table("shards").to_table(columns=["weight_sample"]).to_pylist()
    assert len({shard["weight_sample"] for shard in shards}) == 1
    assert list((tmp_path / "out" / "pins").iterdir()) == [], "adapter and base are let go"
