"""Grading by columns while journals grow: each sample once, whatever the segments."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import StoreError
from schemas.inference import Plan, PlannedItem, SampleRecord
from schemas.sampling import SamplingSpec
from schemas.states import FinishReason
from schemas.tables import GRADE_SCHEMA, JOURNAL_SCHEMA, PROMPT_SCHEMA
from tasks.grading.following import GradeBook
from tasks.grading.grader import Grader
from tasks.inference.exchange.journal import JournalFollower, JournalWriter

N_SAMPLES = 2


def plan_of(num_items: int) -> Plan:
    return Plan(
        plan_key="k",
        seed=0,
        n_samples=N_SAMPLES,
        engine="vllm",
        dtype="auto",
        weight_digest="w",
        tokenizer_digest="t",
        chat_template_digest="c",
        dataset="d",
        dataset_version="v",
        sampling=SamplingSpec(temperature=0, top_p=1, top_k=-1, max_new_tokens=8, eos_token_ids=(2,)),
        max_model_len=64,
        items=tuple(PlannedItem(item_id=f"i{n}", prompt_hash="h", num_prompt_tokens=1) for n in range(num_items)),
    )


def prompts_of(num_items: int, *, ending: str = "") -> pa.Table:
    rows = [
        {
            "item_id": f"i{n}",
            "prompt_hash": "h",
            "prompt": f"What is {n}?{ending}",
            "token_ids": [n],
            "gold": str(n),
            "grader": "math",
            "grader_data": "",
            "subsets": [],
        }
        for n in range(num_items)
    ]
    return pa.Table.from_pylist(rows, schema=PROMPT_SCHEMA)


def record(item: int, repeat: int = 0, *, completion: str | None = None, error: str | None = None) -> SampleRecord:
    return SampleRecord(
        item_id=f"i{item}",
        repeat=repeat,
        prompt_hash="h",
        completion=f"It is \\boxed{{{item}}}." if completion is None else completion,
        finish_reason=None if error else FinishReason.STOP,
        num_prompt_tokens=1,
        num_completion_tokens=4,
        mean_logprob=None,
        seed=0,
        latency_s=0.0,
        batch_size=1,
        replica=3,
        attempt=2,
        finished_at=0.0,
        error=error,
    )


def journal_of(*records: SampleRecord) -> pa.Table:
    return pa.Table.from_pylist([each.model_dump(mode="json") for each in records], schema=JOURNAL_SCHEMA)


def test_each_sample_is_graded_against_its_own_gold() -> None:
    with Grader() as grader:
        book = GradeBook(plan_of(3), prompts_of(3), grader)
        book.grade(journal_of(record(2), record(0, completion="\\boxed{7}"), record(1, error="refused")))
    rows = book.table().to_pylist()
    assert [(row["item_id"], row["verdict"]) for row in rows] == [("i2", "correct"), ("i0", "wrong"), ("i1", "failed")]
    assert {(row["replica"], row["attempt"]) for row in rows} == {(3, 2)}
    assert book.table().schema == GRADE_SCHEMA


def test_the_first_completion_of_a_sample_is_the_graded_one() -> None:
    with Grader() as grader:
        book = GradeBook(plan_of(1), prompts_of(1), grader)
        again = record(0, completion="\\boxed{5}")
        book.grade(journal_of(record(0), again))
        book.grade(journal_of(again, record(0, 1)))
    assert book.table().column("verdict").to_pylist() == ["correct", "correct"]


@pytest.mark.parametrize("stranger", [record(9), record(0, N_SAMPLES), record(0, -1)])
def test_a_sample_that_was_never_planned_is_an_error(stranger: SampleRecord) -> None:
    with Grader() as grader:
        book = GradeBook(plan_of(1), prompts_of(1), grader)
        with pytest.raises(StoreError, match="never planned"):
            book.grade(journal_of(stranger))


def test_a_prompt_that_opens_the_reasoning_makes_an_unclosed_one_truncated() -> None:
    with Grader() as grader:
        book = GradeBook(plan_of(1), prompts_of(1, ending="<think>\n"), grader)
        book.grade(journal_of(record(0, 0), record(0, 1, completion="hm</think>\\boxed{0}")))
    assert book.table().column("verdict").to_pylist() == ["truncated", "correct"]


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(0, 7), max_size=5), segment_size=st.integers(1, 5), taken=st.integers(1, 3))
def test_tables_left_in_the_iterator_come_with_the_next_call(sizes: list[int], segment_size: int, taken: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        writer, follower = JournalWriter(Path(name), segment_size=segment_size), JournalFollower(Path(name))
        number, seen = 0, list[str]()
        for size in sizes:
            for _ in range(size):
                writer.append(record(number))
                number += 1
            for _, table in zip(range(taken), follower.new_tables(), strict=False):
                seen += table.column("item_id").to_pylist()
        writer.close()
        seen += [item_id for table in follower.new_tables() for item_id in table.column("item_id").to_pylist()]
    assert seen == [f"i{n}" for n in range(number)]
