"""Canaries: chosen alike for every replica, answered greedily, kept apart from the samples."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.engines.selection import open_engine
from schemas.consistency import ConsistencyConfig
from schemas.errors import ConfigError, WorkerError
from schemas.identity import prompt_hash
from schemas.inference import EngineSpec, Plan, PlannedItem, SetAsideItem, WorkerSpec
from schemas.sampling import SamplingSpec
from schemas.stand_in import StandInSpec
from tasks.inference.exchange.journal import finished_samples
from tasks.inference.exchange.worker_files import read_canaries
from tasks.inference.planning.plan import planned_dtype
from tasks.inference.worker.canaries import answer_canaries, plan_canaries

SAMPLING = SamplingSpec(temperature=1.0, top_p=0.9, top_k=5, max_new_tokens=40, eos_token_ids=(2,))


def plan_of(num_items: int) -> Plan:
    return Plan(
        plan_key="k",
        seed=5,
        n_samples=1,
        engine="stand_in",
        dtype="auto",
        weight_digest="w",
        tokenizer_digest="t",
        chat_template_digest="c",
        dataset="d",
        dataset_version="v",
        sampling=SAMPLING,
        max_model_len=64,
        items=tuple(PlannedItem(item_id=f"i{n}", prompt_hash="h", num_prompt_tokens=1) for n in range(num_items)),
    )


def prompt_of(item_id: str) -> list[int]:
    return [1, 2, int(item_id[1:])]


def spec_of(folder: Path, *, replica: int = 0, canaries: tuple[str, ...] = ("i1", "i2")) -> WorkerSpec:
    golds = pa.table({"prompt_hash": [prompt_hash(prompt_of("i1"))], "gold": ["42"]})
    pq.write_table(golds, folder / "prompts.parquet")
    output = folder / f"replica-{replica:03d}"
    output.mkdir()
    return WorkerSpec(
        run_id="run",
        replica=replica,
        attempt=1,
        engine=EngineSpec(
            engine="stand_in",
            model_path=folder,
            dtype="auto",
            max_model_len=64,
            batch_size=4,
            seed=0,
            stand_in=StandInSpec(step_s=0, answers_path=folder / "prompts.parquet"),
        ),
        sampling=SAMPLING,
        seed=5,
        prompts_path=folder / "prompts.parquet",
        work_path=folder / "work.parquet",
        output_dir=output,
        canaries=canaries,
        canary_tokens=8,
    )


def answer(spec: WorkerSpec) -> None:
    engine = open_engine(spec.engine, spec.sampling, 1)
    answer_canaries(spec, engine, prompt_of, engine.step)
    assert engine.num_unfinished == 0


def test_replicas_get_eight_canaries_and_a_single_one_none() -> None:
    config = ConsistencyConfig()
    assert len(plan_canaries(plan_of(100), config, num_replicas=2)) == 8
    assert plan_canaries(plan_of(100), config, num_replicas=1) == ()
    assert sorted(plan_canaries(plan_of(3), config, num_replicas=2)) == ["i0", "i1", "i2"]
    assert plan_canaries(plan_of(100), ConsistencyConfig(canaries=0), num_replicas=9) == ()


def test_the_same_plan_has_the_same_canaries_whatever_the_replicas() -> None:
    config = ConsistencyConfig(canaries=5)
    assert plan_canaries(plan_of(50), config, num_replicas=2) == plan_canaries(plan_of(50), config, num_replicas=96)
    other = plan_of(50).model_copy(update={"seed": 6})
    assert plan_canaries(other, config, num_replicas=2) != plan_canaries(plan_of(50), config, num_replicas=2)


def test_more_canaries_than_items_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"consistency.canaries is 9, allowed: 0 to 4"):
        plan_canaries(plan_of(4), ConsistencyConfig(canaries=9), num_replicas=2)


def test_canaries_are_answered_greedily_and_are_no_samples(tmp_path: Path) -> None:
    first, second = (spec_of(tmp_path, replica=replica) for replica in range(2))
    for spec in (first, second.model_copy(update={"sampling": SAMPLING.model_copy(update={"temperature": 0.3})})):
        answer(spec)
    records = read_canaries(first.output_dir)
    assert {record.item_id for record in records} == {"i1", "i2"}
    assert sorted(records, key=str) == sorted(read_canaries(second.output_dir), key=str)
    for record in records:
        assert record.prompt_hash == prompt_hash(prompt_of(record.item_id))
        assert record.logprobs is not None
        assert 1 <= len(record.token_ids) == len(record.logprobs) <= 8
    assert finished_samples([first.output_dir]) == set()


def test_a_refused_canary_is_a_record_with_the_reason(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, canaries=("i1",))
    engine = open_engine(spec.engine, spec.sampling, 1)
    answer_canaries(spec, engine, lambda _: [1] * 64, engine.step)
    (record,) = read_canaries(spec.output_dir)
    assert "64 tokens" in (record.error or "")


def test_an_item_that_kills_its_workers_is_asked_as_no_canary_either(tmp_path: Path) -> None:
    spec = spec_of(tmp_path).model_copy(update={"set_aside": (SetAsideItem(item_id="i1", reason="deadly"),)})
    answer(spec)
    assert [record.item_id for record in read_canaries(spec.output_dir)] == ["i2"]


def test_what_was_answered_before_a_kill_stays_and_a_cut_line_does_not_count(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    answer(spec)
    path = spec.output_dir / "canaries.jsonl"
    whole, rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(whole + rest[: len(rest) // 2])
    assert len(read_canaries(spec.output_dir)) == 1
    path.write_bytes(b"{}\n")
    with pytest.raises(WorkerError, match="holds no canaries"):
        read_canaries(spec.output_dir)


def test_a_worker_without_canaries_has_none(tmp_path: Path) -> None:
    assert read_canaries(tmp_path) == []


def test_strict_runs_take_float32_unless_the_engine_has_kernels_for_it() -> None:
    assert planned_dtype("bfloat16", "vllm", strict=True, on_gpu=False) == "float32"
    assert planned_dtype("bfloat16", "transformers", strict=True, on_gpu=True) == "float32"
    assert planned_dtype("bfloat16", "vllm", strict=True, on_gpu=True) == "bfloat16"
    assert planned_dtype("auto", "vllm", strict=False, on_gpu=False) == "auto"
