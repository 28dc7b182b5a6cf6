"""Refreshing with real processes, real procedural tasks and the public data."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from infra.datasets.conversation import problem_text
from infra.fileroot.validation_sets import versions_of
from schemas.config import EvaluationConfig
from schemas.refresh import DrawReport, RefreshOutcome
from schemas.training_position import TrainingPosition
from tasks.refresh.stage import refresh_validation_set

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from datetime import UTC, datetime
from schemas.config import EvaluationConfig
from schemas.training_position import TrainingPosition
from tasks.refresh.stage import refresh_validation_set
config = EvaluationConfig.model_validate_json(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
outcome = refresh_validation_set(config, reason="a test", position=TrainingPosition(), now=datetime.now(UTC))
print(outcome.model_dump_json(), flush=True)
"""


def make_config(folder: Path, path: str, **refresh: Any) -> EvaluationConfig:
    return EvaluationConfig.model_validate(
        {
            "actor": {"path": "model"},
            "cluster": {"fileroot": str(folder / "out")},
            "valid_dataset": {"path": path, "exclude_golds": ["None"]},
            "refresh": refresh,
        }
    )


def refresh(config: EvaluationConfig) -> DrawReport:
    outcome = refresh_validation_set(config, reason="a test", position=TrainingPosition(), now=datetime.now(UTC))
    assert outcome.manifest.draw is not None
    return outcome.manifest.draw


def start(config: EvaluationConfig) -> "subprocess.Popen[str]":
    """Start a refresh in a process of its own that waits for a line on its standard input."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, config.model_dump_json()],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def write_rows(path: Path, prefix: str, count: int) -> str:
    rows = [
        {"question": " ".join(f"{prefix}{number}word{place}" for place in range(40)), "answer": f"so\n#### {number}"}
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_two_refreshes_at_once_make_one_version(tmp_path: Path) -> None:
    source, pool = write_rows(tmp_path / "s.jsonl", "s", 200), write_rows(tmp_path / "p.jsonl", "p", 3_000)
    config = make_config(tmp_path, source, pool=[pool])
    processes = [start(config) for _ in range(2)]
    outcomes: list[RefreshOutcome] = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        reply, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        outcomes.append(RefreshOutcome.model_validate_json(reply))
    assert len({outcome.manifest.version for outcome in outcomes}) == 1
    assert sorted(outcome.is_new for outcome in outcomes) == [False, True]
    assert len(versions_of(config).versions()) == 2


@pytest.mark.parametrize("delay_s", [0.1, 0.4, 0.8, 1.2])
def test_a_killed_refresh_leaves_the_old_version_or_the_new_one(tmp_path: Path, delay_s: float) -> None:
    source, pool = write_rows(tmp_path / "s.jsonl", "s", 1_000), write_rows(tmp_path / "p.jsonl", "p", 3_000)
    config = make_config(tmp_path, source, pool=[pool])
    process = start(config)
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    time.sleep(delay_s)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    store = versions_of(config)
    current = store.current()
    if current is not None:
        assert len(store.read(current).items) == 1_000
    refresh(config)
    assert store.read(store.current() or "").manifest.parent == (store.versions()[0] if current is None else current)


def test_a_procedural_pool_is_drawn_anew_for_each_version(tmp_path: Path) -> None:
    task = "reasoning_gym:chain_sum+basic_arithmetic"
    config = make_config(tmp_path, f"{task}?size=40&seed=1", pool=[f"{task}?size=200&seed=1"], anchor_ratio=0.25)
    first, second = refresh(config), refresh(config)
    assert [draw.pool[0].path for draw in (first, second)] == [
        f"{task}?size=200&seed={1 + 2**20}",
        f"{task}?size=200&seed={1 + 2 * 2**20}",
    ]
    assert first.anchors == second.anchors
    assert (first.num_near_duplicates, [row.drawn for row in first.strata]) == (0, [15, 15])
    store = versions_of(config)
    texts = [{problem_text(item) for item in store.read(name).items} for name in store.versions()]
    assert [len(one) for one in texts] == [40, 40, 40]
    assert len(texts[1] & texts[2]) <= 12  # the ten anchors, and chance among short sums
    assert "Put your final answer" not in "".join(texts[2])


@pytest.mark.needs_data
def test_gsm8k_shares_next_to_nothing_with_its_training_data(tmp_path: Path, data_dir: Path) -> None:
    gsm8k = data_dir / "gsm8k"
    test, train = str(gsm8k / "test.jsonl"), str(gsm8k / "train.jsonl")
    draw = refresh(make_config(tmp_path, test, pool=[test], training_data=[train], anchor_ratio=0, size=1_300))
    report = draw.contamination
    # 1,319 of the parent and the same 1,319 of the pool, of which three share a 13-gram
    assert (report.num_checked, report.num_training_rows) == (2_638, 7_473)
    assert (report.num_exact, report.num_ngram, report.num_minhash) == (0, 6, 0)
    assert (draw.num_exact_duplicates, draw.num_near_duplicates, draw.strata[0].had) == (0, 0, 1_316)
    plane = max(report.matches, key=lambda match: match.overlap)
    assert plane.overlap == pytest.approx(0.54, abs=0.01)
    assert "miles in 3 hours at the same rate how many additional hours" in plane.text


@pytest.mark.needs_data
def test_training_on_the_test_set_is_found(tmp_path: Path, data_dir: Path) -> None:
    test, train = (data_dir / "gsm8k" / f"{name}.jsonl" for name in ("test", "train"))
    rows = [json.loads(line) for line in test.read_text("utf-8").split("\n") if line]
    leaked = tmp_path / "leaked.jsonl"
    texts = [f"Q: {row['question'].lower()} A: {row['answer']}" for row in rows[:300]]
    texts += [row["question"].replace(" the ", " a ", 1) for row in rows[300:400]]
    leaked.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    config = make_config(tmp_path, str(train), pool=[str(test)], training_data=[str(leaked)], anchor_ratio=0, size=900)
    draw = refresh(config)
    assert draw.contamination.num_exact + draw.contamination.num_ngram + draw.contamination.num_minhash >= 395
    drawn = {problem_text(item) for item in versions_of(config).read(versions_of(config).current() or "").items}
    assert not drawn & {row["question"] for row in rows[:300]}


@pytest.mark.needs_data
def test_golds_without_an_answer_are_passed_over(tmp_path: Path, data_dir: Path) -> None:
    """GSM-Plus has 300 problems whose gold is `None`."""
    plus = data_dir / "gsm_plus" / "gsmplus_testmini.jsonl"
    config = make_config(tmp_path, str(data_dir / "gsm8k" / "test.jsonl"), pool=[str(plus)], size=300, stratify_by=[])
    config = config.model_copy(update={"valid_dataset": config.valid_dataset.model_copy(update={"exclude_golds": ()})})
    draw = refresh(config)
    assert 10 < len(draw.refused_golds) < 300
    assert all("'None'" in refused.reason for refused in draw.refused_golds)
