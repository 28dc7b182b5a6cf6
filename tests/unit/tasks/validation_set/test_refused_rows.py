"""Rows that cannot be used are listed in a file, however many a message shows."""

import json
import pickle
from pathlib import Path

import pytest

from schemas.config import EvaluationConfig
from schemas.errors import RefusedRowsError
from tasks.validation_set.loading import load_graded


@pytest.fixture
def config(tmp_path: Path) -> EvaluationConfig:
    data = tmp_path / "mine.jsonl"
    rows = [{"q": f"What is {n} + 1?", "a": str(n + 1) if n > 8 else "None"} for n in range(12)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return EvaluationConfig.model_validate(
        {
            "cluster": {"fileroot": str(tmp_path / "root")},
            "actor": {"path": "model"},
            "valid_dataset": {"path": str(data), "columns": {"prompt": "q", "gold": "a"}},
        }
    )


def listed(tmp_path: Path) -> list[int]:
    path = tmp_path / "root" / "refused_rows" / "mine.jsonl"
    assert path.parent.stat().st_mode & 0o077 == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert all("cannot be graded" in row["reason"] for row in rows)
    return [row["row"] for row in rows]


def test_a_refused_dataset_names_the_file_that_lists_every_row(config: EvaluationConfig, tmp_path: Path) -> None:
    with pytest.raises(
        RefusedRowsError, match=r"9 of 12 rows cannot be used(.|\n)*refused_rows/mine\.jsonl lists them all"
    ) as caught:
        load_graded(config)
    assert listed(tmp_path) == list(range(1, 10))
    assert pickle.loads(pickle.dumps(caught.value)).rows == caught.value.rows


def test_rows_left_out_are_listed_and_noted(config: EvaluationConfig, tmp_path: Path) -> None:
    section = config.valid_dataset.model_copy(update={"invalid_rows": "skip"})
    dataset = load_graded(config.model_copy(update={"valid_dataset": section}))
    assert len(dataset.items) == 3
    assert dataset.notes[0].startswith("9 rows cannot be used and are left out (valid_dataset.invalid_rows=skip); ")
    assert listed(tmp_path) == list(range(1, 10))
