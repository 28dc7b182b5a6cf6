"""The merge certificate: exactly once, from the planned prompt, or nothing."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.checkpoint import CheckpointIdentity
from schemas.errors import MergeError
from schemas.identity import sample_seed
from schemas.inference import Plan, PlannedItem, RefusedItem
from schemas.run import RunIdentity
from schemas.sampling import SamplingSpec
from schemas.tables import GRADE_SCHEMA, JOURNAL_SCHEMA, PROMPT_SCHEMA, SAMPLES
from tasks.inference.planning.plan import PlanSettings, make_plan
from tasks.inference.runs.merge import MergeCertificate, SampleMerger, merge_samples

IDENTITY = RunIdentity(
    run_id="run",
    experiment_name="e",
    trial_name="t",
    checkpoint="ckpt",
    weight_digest="w",
    global_step=None,
    dataset="toy",
    dataset_version="v1",
)


def plan_of(num_items: int, n_samples: int, num_refused: int = 0) -> Plan:
    return make_plan(
        identity=CheckpointIdentity(
            weight_digest="w", tokenizer_digest="t", chat_template_digest="c", model_config_digest="m"
        ),
        dataset="toy",
        dataset_version="v1",
        items=[PlannedItem(item_id=f"i{n}", prompt_hash=f"h-i{n}", num_prompt_tokens=3) for n in range(num_items)],
        refused=[RefusedItem(item_id=f"r{n}", prompt_hash=f"h-r{n}", reason="too long") for n in range(num_refused)],
        settings=PlanSettings(
            seed=1,
            n_samples=n_samples,
            engine="vllm",
            dtype="auto",
            max_model_len=64,
            sampling=SamplingSpec(temperature=1.0, top_p=1.0, top_k=-1, max_new_tokens=16, eos_token_ids=(2,)),
        ),
    )


def keys_of(plan: Plan) -> list[tuple[str, int]]:
    return [(item.item_id, repeat) for item in plan.items for repeat in range(plan.n_samples)]


def prompts_of(plan: Plan) -> pa.Table:
    rows = [
        {
            "item_id": item.item_id,
            "prompt_hash": item.prompt_hash,
            "prompt": f"prompt of {item.item_id}",
            "token_ids": [1, 2, 3],
            "gold": "4",
            "grader": "math",
            "grader_data": "",
            "subsets": [("task", "add")],
        }
        for item in (*plan.refused, *plan.items)
    ]
    return pa.Table.from_pylist(rows, schema=PROMPT_SCHEMA)


def journal_of(keys: list[tuple[str, int]], *, attempt: int = 1, prompt_hash: str | None = None) -> pa.Table:
    rows = [
        {
            "item_id": item_id,
            "repeat": repeat,
            "prompt_hash": prompt_hash or f"h-{item_id}",
            "completion": f"{item_id}#{repeat} of attempt {attempt}",
            "finish_reason": "stop",
            "num_prompt_tokens": 3,
            "num_completion_tokens": 5,
            "mean_logprob": -0.5,
            "completion_ids": [attempt, 2, 3, 4, 5],
            "token_logprobs": [-0.25, -0.5, -0.75, -0.5, None],
            "seed": 7,
            "latency_s": 0.1,
            "batch_size": 8,
            "replica": 0,
            "attempt": attempt,
            "finished_at": 1.0,
        }
        for item_id, repeat in keys
    ]
    return pa.Table.from_pylist(rows, schema=JOURNAL_SCHEMA)


def grades_of(keys: list[tuple[str, int]]) -> pa.Table:
    rows = [
        {
            "item_id": item_id,
            "repeat": repeat,
            "replica": 0,
            "attempt": 1,
            "verdict": "correct",
            "answer": f"{item_id}#{repeat}",
            "score": 1.0,
        }
        for item_id, repeat in keys
    ]
    return pa.Table.from_pylist(rows, schema=GRADE_SCHEMA)


def merged(plan: Plan, journal: list[pa.Table], path: Path) -> tuple[MergeCertificate, pa.Table]:
    merger = SampleMerger(plan, prompts_of(plan), grades_of(keys_of(plan)))
    certificate = merge_samples(merger, journal, plan=plan, identity=IDENTITY, path=path)
    return certificate, pq.read_table(path)


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 3), st.data())
def test_any_cut_of_the_journal_merges_to_the_same_rows(num_items: int, repeats: int, data: st.DataObject) -> None:
    import tempfile

    plan = plan_of(num_items, repeats)
    keys = data.draw(st.permutations(keys_of(plan)))
    cut = data.draw(st.integers(0, len(keys)))
    with tempfile.TemporaryDirectory() as folder:
        certificate, table = merged(plan, [journal_of(keys[:cut]), journal_of(keys[cut:])], Path(folder, "s.parquet"))
    assert table.schema.equals(SAMPLES)
    assert certificate.num_planned == table.num_rows == len(keys)
    rows = {(row["item_id"], row["repeat"]): row for row in table.to_pylist()}
    assert set(rows) == set(keys)
    assert all(
        row["answer"] == f"{key[0]}#{key[1]}" and row["prompt"] == f"prompt of {key[0]}" for key, row in rows.items()
    )


def test_the_graded_completion_wins_and_its_copies_are_counted(tmp_path: Path) -> None:
    plan = plan_of(2, 1)
    journal = [journal_of([("i0", 0)], attempt=2), journal_of([("i0", 0), ("i1", 0), ("i1", 0)])]
    certificate, table = merged(plan, journal, tmp_path / "s.parquet")
    assert certificate.num_duplicates == 2
    assert table.column("completion").to_pylist() == ["i0#0 of attempt 1", "i1#0 of attempt 1"]
    assert certificate.num_completion_tokens == 10
    assert table.column("completion_token_ids").to_pylist() == [[1, 2, 3, 4, 5]] * 2
    assert table.column("token_logprobs").to_pylist() == [[-0.25, -0.5, -0.75, -0.5, None]] * 2


def test_a_missing_sample_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    plan = plan_of(3, 2)
    with pytest.raises(MergeError, match=r"1 of 6 planned samples are missing, first i2#1"):
        merged(plan, [journal_of(keys_of(plan)[:-1])], tmp_path / "s.parquet")
    assert list(tmp_path.iterdir()) == []


def test_another_prompt_than_planned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MergeError, match=r"'i0' was answered by replica 0 .* from another prompt"):
        merged(plan_of(1, 1), [journal_of([("i0", 0)], prompt_hash="other")], tmp_path / "s.parquet")


@pytest.mark.parametrize("key", [("stranger", 0), ("i0", 1), ("i0", -1)])
def test_a_sample_that_was_never_planned_is_refused(tmp_path: Path, key: tuple[str, int]) -> None:
    with pytest.raises(MergeError, match="never planned"):
        merged(plan_of(1, 1), [journal_of([("i0", 0), key])], tmp_path / "s.parquet")


def test_a_sample_without_a_grade_is_refused(tmp_path: Path) -> None:
    plan = plan_of(2, 1)
    merger = SampleMerger(plan, prompts_of(plan), grades_of([("i0", 0)]))
    with pytest.raises(MergeError, match="1 samples have no grade"):
        merge_samples(merger, [journal_of(keys_of(plan))], plan=plan, identity=IDENTITY, path=tmp_path / "s.parquet")


def test_refused_items_become_failed_rows_without_a_score(tmp_path: Path) -> None:
    plan = plan_of(1, 2, num_refused=1)
    certificate, table = merged(plan, [journal_of(keys_of(plan))], tmp_path / "s.parquet")
    refused = [row for row in table.to_pylist() if row["item_id"] == "r0"]
    assert certificate.num_refused == 2
    assert [row["verdict"] for row in refused] == ["failed", "failed"]
    assert [row["seed"] for row in refused] == [sample_seed(1, "r0", 0), sample_seed(1, "r0", 1)]
    assert all(row["score"] is None and row["completion"] is None and row["error"] == "too long" for row in refused)
    assert all(row["num_prompt_tokens"] == 3 and row["prompt"] == "prompt of r0" for row in refused)
