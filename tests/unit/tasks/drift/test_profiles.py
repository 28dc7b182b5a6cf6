"""Frozen profiles: what they keep, and what the contract learns from them."""

from pathlib import Path

import pytest

from schemas.dataset import ChatMessage, EvalItem
from schemas.errors import StoreError
from schemas.tables import PROFILE_SCHEMA
from tasks.drift.profiles import ProfileStore, describe_profile, digest_rows, name_rows, tabulate


def make_item(number: int, **subsets: str) -> EvalItem:
    messages = (
        ChatMessage(role="system", content="Be brief."),
        ChatMessage(role="user", content=f"What is {number}?\nBox it."),
    )
    gold = str(number) if number else ""
    return EvalItem(item_id=f"i{number}", messages=messages, gold=gold, subsets=subsets, prompt_suffix="\nBox it.")


ITEMS = [make_item(number, level=str(number % 2), source=f"page {number}") for number in range(1, 9)]


def test_a_profile_keeps_the_problem_and_not_how_it_is_asked() -> None:
    table = tabulate(ITEMS)
    assert table.schema == PROFILE_SCHEMA
    assert table.to_pylist()[0] == {
        "item_id": "i1",
        "prompt": "What is 1?",
        "answer": "1",
        "subset": ["level=1", "source=page 1"],
        "grader": "math",
    }
    assert tabulate([make_item(0)]).to_pylist()[0]["answer"] is None


def test_the_digest_knows_no_order_and_sees_each_cell() -> None:
    assert digest_rows(tabulate(ITEMS)) == digest_rows(tabulate(ITEMS[::-1]))
    changed = ITEMS[0].model_copy(update={"gold": "2"})
    assert digest_rows(tabulate([changed, *ITEMS[1:]])) != digest_rows(tabulate(ITEMS))


def test_a_frozen_profile_never_changes(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    rows = name_rows(tabulate(ITEMS))
    assert store.first() is None
    store.freeze(rows)
    store.freeze(name_rows(tabulate(ITEMS[:3]))._replace(version=rows.version))
    assert store.first() == rows.version
    assert store.read(rows.version).table.num_rows == len(ITEMS)
    assert store.read(rows.version).digest == rows.digest
    later = name_rows(tabulate(ITEMS[:3]))
    store.freeze(later)
    assert store.has(later.version)
    assert store.first() == rows.version
    (tmp_path / "reference.json").write_text("{}")
    with pytest.raises(StoreError, match=r"reference\.json cannot be read; remove it"):
        store.first()


def test_only_closed_sets_of_values_are_known() -> None:
    profile = describe_profile(tabulate(ITEMS))
    assert profile.value_sets == {"subset:level": ("0", "1")}, "each page occurs once: the next row has a new one"
    assert (profile.min_prompt_length, profile.max_prompt_length, profile.has_answers) == (10, 10, True)
    assert not describe_profile(tabulate([make_item(0), *ITEMS])).has_answers


def test_data_of_one_name_in_another_format_has_a_reference_of_its_own(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path)
    lines, table = name_rows(tabulate(ITEMS)), name_rows(tabulate(ITEMS[:3]))
    store.freeze(lines, "jsonl")
    assert (store.first("jsonl"), store.first("csv"), store.first()) == (lines.version, None, lines.version)
    store.freeze(table, "csv")
    assert (store.first("jsonl"), store.first("csv")) == (lines.version, table.version)
    (tmp_path / "reference.json").write_text(f'{{"version": "{lines.version}"}}')  # as earlier versions wrote it
    assert store.first("csv") == store.first("parquet") == lines.version
