"""An evaluation asks the current version where a pool is configured, and its source where none is."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from infra.fileroot.validation_sets import versions_of
from schemas.checkpoint import CheckpointReport
from schemas.config import EvaluationConfig
from schemas.errors import DatasetError, StoreError
from schemas.training_position import TrainingPosition
from schemas.validation_set import ValidationSet
from tasks.refresh.stage import refresh_validation_set, roll_back
from tasks.validation_set.loading import check_validation_set, load_graded, load_validation_set
from tests.support.chat_folders import make_family


class Bench:
    """A source and a pool of made-up problems, and a checkpoint's tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenizer = make_family("llama", folder / "model")
        for name, count in (("source", 20), ("pool", 60)):
            rows = [
                {"question": " ".join(f"{name}{number}word{place}" for place in range(6)), "answer": f"#### {number}"}
                for number in range(count)
            ]
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def config(self, *, pool: bool = True, **valid_dataset: Any) -> EvaluationConfig:
        return EvaluationConfig.model_validate(
            {
                "actor": {"path": "model"},
                "cluster": {"fileroot": str(self.folder / "out")},
                "gconfig": {"max_new_tokens": 8},
                "valid_dataset": {"path": str(self.folder / "source.jsonl")} | valid_dataset,
                "refresh": {"pool": [str(self.folder / "pool.jsonl")] if pool else []},
            }
        )

    def refresh(self) -> str:
        outcome = refresh_validation_set(
            self.config(), reason="a test", position=TrainingPosition(), now=datetime(2026, 1, 2, tzinfo=UTC)
        )
        return outcome.manifest.version

    def report(self) -> CheckpointReport:
        return CheckpointReport(
            path=self.tokenizer,
            status="complete",
            layout="huggingface",
            global_step=None,
            problems=(),
            context_length=512,
        )

    def load(self, config: EvaluationConfig | None = None) -> ValidationSet:
        return load_validation_set(config or self.config(), self.report(), self.tokenizer)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_current_version_is_asked(bench: Bench) -> None:
    before = bench.load()
    version = bench.refresh()
    manifest = versions_of(bench.config()).read_manifest(version)
    after = bench.load()
    assert before.version != after.version == manifest.content_digest
    assert (before.name, after.name) == ("source", "source")
    assert after.prompts.table["item_id"].to_pylist() == list(manifest.item_digests)
    assert after.notes == (f"version {version} (a test) is asked; {bench.folder / 'source.jsonl'} is not read",)
    roll_back(bench.config(), "v1")
    assert bench.load().version == before.version


def test_without_a_pool_the_source_is_asked(bench: Bench) -> None:
    before = bench.load()
    bench.refresh()
    assert bench.load(bench.config(pool=False)).version == before.version


def test_what_was_checked_before_a_refresh_is_not_asked_after_it(bench: Bench) -> None:
    check_validation_set(bench.config(), bench.report(), bench.tokenizer)
    version = bench.refresh()
    assert bench.load().version == versions_of(bench.config()).read_manifest(version).content_digest


def test_a_limit_takes_the_first_items_of_the_version(bench: Bench) -> None:
    bench.refresh()
    whole, part = load_graded(bench.config()), load_graded(bench.config(limit=5))
    assert part.items == whole.items[:5]
    assert part.version != whole.version


def test_an_edited_version_is_not_asked(bench: Bench) -> None:
    version = bench.refresh()
    path = versions_of(bench.config()).root / "versions" / version / "manifest.json"
    path.write_text(path.read_text().replace("source", "sauce"))
    with pytest.raises(StoreError, match=r"manifest\.json was changed after it was written.*--rollback v1-"):
        load_graded(bench.config())


def test_a_gold_that_cannot_be_graded_is_refused_with_a_way_back(bench: Bench) -> None:
    """A version that was drawn for a reward function may hold golds that the grader does not read."""
    rows = [
        {"question": " ".join(f"free{number}word{place}" for place in range(6)), "answer": "#### none"}
        for number in range(60)
    ]
    (bench.folder / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = bench.config().model_copy(update={"reward_fn": "tests.support.rewards.score"})
    refresh_validation_set(own, reason="a test", position=TrainingPosition(), now=datetime(2026, 1, 2, tzinfo=UTC))
    with pytest.raises(DatasetError, match=r"version v2-.*cannot be graded.*--rollback"):
        load_graded(bench.config())
