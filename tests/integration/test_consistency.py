"""Replicas on real engines: healthy ones agree, and each usual fault is found and its replica named."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from schemas.errors import DistributedEvaluationError, EngineError
from schemas.inference import EngineName, WorkerSpec
from schemas.tables import CONSISTENCY, SHARDS
from tasks.consistency.stage import settle_disagreement
from tasks.inference.exchange.journal import finished_samples
from tasks.inference.stage import merge_run
from tasks.inference.worker.broken_numbers import set_aside_broken
from tests.support.engine_environment import CHECKPOINT, ENGINE_PYTHON, engine_process_environment, require_engine
from tests.support.replica_runs import Fault, OtherProgramLauncher, ReplicaRun, prompts_of

BAD = 2
NUM_ITEMS = 24
QUESTIONS = [[1, 100 + number, 200 + 3 * number, 7] for number in range(NUM_ITEMS)]

MAKE_MODELS = """
import sys, torch
from pathlib import Path
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
checkpoint, folder = sys.argv[1], Path(sys.argv[2])
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
config = LlamaConfig(vocab_size=49152, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                     num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3)
for name, noise in {"right": 0.0, "disturbed": 0.01, "broken": float("nan")}.items():
    torch.manual_seed(3)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    model.save_pretrained(folder / name)
    tokenizer.save_pretrained(folder / name)
"""


class Models(NamedTuple):
    """A tiny random model, the same with its weights disturbed, and with weights that are no numbers."""

    right: Path
    disturbed: Path
    broken: Path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    require_engine()
    folder = tmp_path_factory.mktemp("models")
    command = [str(ENGINE_PYTHON), "-c", MAKE_MODELS, str(CHECKPOINT), str(folder)]
    subprocess.run(command, env=engine_process_environment(), check=True, capture_output=True)
    return Models(*(folder / name for name in Models._fields))


def start(folder: Path, models: Models, engine: EngineName = "transformers") -> ReplicaRun:
    prompts = prompts_of(QUESTIONS)
    return ReplicaRun(folder, prompts=prompts, model=models.right, engine=engine, python=ENGINE_PYTHON, config={})


@pytest.fixture(scope="module")
def healthy(models: Models, tmp_path_factory: pytest.TempPathFactory) -> ReplicaRun:
    run = start(tmp_path_factory.mktemp("healthy"), models)
    run.generate()
    return run


@pytest.mark.needs_engine
@pytest.mark.timeout(1500)
def test_healthy_replicas_agree_and_their_canaries_are_no_samples(healthy: ReplicaRun) -> None:
    report = healthy.check()
    assert report.verdict == "agree", report.message
    outcomes = {check.check: check.outcome for check in report.checks}
    assert {outcomes[name] for name in ("weights", "tokenizer", "sampling", "canaries", "prompts")} == {"passed"}
    assert merge_run(healthy.session.record).num_planned == 2 * NUM_ITEMS
    assert pq.read_schema(healthy.session.record.run.shards_path).equals(SHARDS)
    assert pq.read_schema(healthy.session.record.run.consistency_path).equals(CONSISTENCY)
    shards = pq.read_table(healthy.session.record.run.shards_path)
    assert shards.column("num_samples").to_pylist() == [16] * 3
    assert None not in shards.column("weight_sample").to_pylist()


def disturbed(models: Models, folder: Path) -> Fault:
    def change(spec: WorkerSpec) -> WorkerSpec:
        return spec.model_copy(update={"engine": spec.engine.model_copy(update={"model_path": models.disturbed})})

    return change


def other_dtype(models: Models, folder: Path) -> Fault:
    def change(spec: WorkerSpec) -> WorkerSpec:
        return spec.model_copy(update={"engine": spec.engine.model_copy(update={"dtype": "bfloat16"})})

    return change


def other_temperature(models: Models, folder: Path) -> Fault:
    def change(spec: WorkerSpec) -> WorkerSpec:
        return spec.model_copy(update={"sampling": spec.sampling.model_copy(update={"temperature": 0.3})})

    return change


def other_template(models: Models, folder: Path) -> Fault:
    path = folder / "prompts.parquet"
    pq.write_table(prompts_of([[*ids, 9] for ids in QUESTIONS]), path)

    def change(spec: WorkerSpec) -> WorkerSpec:
        return spec.model_copy(update={"prompts_path": path})

    return change


@pytest.mark.needs_engine
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("make_fault", "found"),
    [
        (disturbed, {"weights", "canaries"}),
        (other_dtype, {"dtype", "canaries"}),
        (other_temperature, {"sampling"}),
        (other_template, {"prompts", "canaries"}),
    ],
)
def test_a_faulty_replica_is_found_and_named(
    make_fault: Callable[[Models, Path], Fault], found: set[str], healthy: ReplicaRun, models: Models, tmp_path: Path
) -> None:
    run = start(tmp_path, models)
    ready = healthy.session.record.run.attempts_path / "0001"
    run.generate(faulty=BAD, fault=make_fault(models, tmp_path), ready=ready)
    report = run.check()
    assert report.verdict == "disagree"
    assert found <= {check.check for check in report.violations}
    assert [replica.number for replica in report.replicas if replica.problems] == [BAD]
    with pytest.raises(DistributedEvaluationError, match=f"the replicas disagree: .*replica {BAD} of attempt 1"):
        settle_disagreement(run.config, run.session, report)


@pytest.mark.needs_engine
@pytest.mark.timeout(1500)
def test_a_replica_that_mixes_its_answers_up_is_found(healthy: ReplicaRun, models: Models, tmp_path: Path) -> None:
    run = start(tmp_path, models)
    run.session.replicas.launcher = OtherProgramLauncher(run.session.replicas.launcher, "tests.support.swapping_worker")
    run.generate(faulty=BAD, ready=healthy.session.record.run.attempts_path / "0001")
    report = run.check()
    assert {check.check for check in report.violations} == {"canaries"}
    assert [replica.number for replica in report.replicas if replica.problems] == [BAD]


@pytest.mark.needs_engine
@pytest.mark.timeout(1500)
def test_vllm_replicas_agree_and_one_with_other_weights_is_found(models: Models, tmp_path: Path) -> None:
    run = start(tmp_path, models, "vllm")
    run.generate(faulty=BAD, fault=disturbed(models, tmp_path))
    report = run.check()
    assert {"weights", "canaries"} <= {check.check for check in report.violations}
    assert [replica.number for replica in report.replicas if replica.problems] == [BAD]


def stand_in_run(folder: Path, **consistency: object) -> ReplicaRun:
    questions = [[1, number // 250, number % 250] for number in range(240)]
    return ReplicaRun(
        folder,
        prompts=prompts_of(questions),
        model=folder,
        engine="stand_in",
        python=Path(sys.executable),
        config={"engine": {"stand_in": {"step_s": 0.0, "mean_tokens": 8}}, "consistency": consistency},
    )


def useless(spec: WorkerSpec) -> WorkerSpec:
    """Its engine never finds an answer."""
    stand_in = spec.engine.stand_in and spec.engine.stand_in.model_copy(update={"accuracy": 0.0})
    return spec.model_copy(update={"engine": spec.engine.model_copy(update={"stand_in": stand_in})})


def test_a_quarantined_replica_is_named_and_its_samples_are_made_by_the_others(tmp_path: Path) -> None:
    run = stand_in_run(tmp_path, on_violation="quarantine", canaries=0)
    run.generate(faulty=BAD, fault=useless)
    report = run.check()
    assert {check.check for check in report.violations} == {"accuracy"}
    assert settle_disagreement(run.config, run.session, report)
    assert [spec.replica for spec in run.session.replicas.specs] == [0, 1]
    run.generate()
    again = run.check()
    assert again.verdict == "agree", again.message
    assert not settle_disagreement(run.config, run.session, again)
    assert merge_run(run.session.record).num_planned == 480
    samples = pq.read_table(run.session.record.run.samples_path, columns=["replica", "attempt"]).to_pylist()
    assert {(row["attempt"], row["replica"]) for row in samples} == {(1, 0), (1, 1), (2, 0), (2, 1)}
    shards = pq.read_table(run.session.record.run.shards_path).to_pylist()
    assert [(row["attempt"], row["replica"]) for row in shards if row["is_quarantined"]] == [(1, BAD)]
    assert shards[0]["problems"]
    assert any(f"replica {BAD} of attempt 1 quarantined" in text for text in run.session.record.state.differences)


def test_disagreement_can_be_published_with_its_verdict(tmp_path: Path) -> None:
    run = stand_in_run(tmp_path, on_violation="warn")
    run.generate(faulty=BAD, fault=useless)
    assert not settle_disagreement(run.config, run.session, run.check())
    assert any("the replicas disagree" in text for text in run.session.record.state.differences)
    checks = pq.read_table(run.session.record.run.consistency_path).to_pylist()
    assert (checks[0]["check"], checks[0]["outcome"]) == ("verdict", "violated")
    assert f"replica {BAD} of attempt 1" in checks[0]["message"]


def test_of_two_that_differ_none_is_set_aside(tmp_path: Path) -> None:
    run = stand_in_run(tmp_path, on_violation="quarantine", canaries=0)
    run.session.replicas.specs = run.session.replicas.specs[:2]
    run.generate(faulty=1, fault=useless)
    with pytest.raises(DistributedEvaluationError, match="nobody can say which of them is wrong"):
        settle_disagreement(run.config, run.session, run.check())


def test_a_launch_that_was_killed_counts_by_its_canaries_not_by_its_lengths(tmp_path: Path) -> None:
    run = stand_in_run(tmp_path)
    run.generate()
    (run.session.record.run.replica_dir(1, 0) / "result.json").unlink()
    report = run.check()
    assert report.verdict == "agree"
    assert report.replicas[0].accuracy is None
    assert report.replicas[1].accuracy is not None


@pytest.mark.needs_engine
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("num_canaries", [8, 0])
def test_a_replica_whose_numbers_are_broken_ends_the_run_and_gets_no_score(
    num_canaries: int, healthy: ReplicaRun, models: Models, tmp_path: Path
) -> None:
    def broken(spec: WorkerSpec) -> WorkerSpec:
        engine = spec.engine.model_copy(update={"model_path": models.broken})
        return spec.model_copy(update={"engine": engine, "canaries": spec.canaries[:num_canaries]})

    run = start(tmp_path, models)
    what = "canaries" if num_canaries else "samples"
    with pytest.raises(EngineError, match=rf"replica {BAD} failed: the engine's numbers are broken, in 8 of 8 {what}"):
        run.generate(faulty=BAD, fault=broken, ready=healthy.session.record.run.attempts_path / "0001")
    finished = finished_samples(run.session.record.run.replica_dirs())
    set_aside_broken(run.session.record.run)
    assert len(finished) == (0 if num_canaries else 8)
    assert finished_samples(run.session.record.run.replica_dirs()) == set()
