"""The guards of the flow, through the command and a real Prefect server; the try-out engine makes the samples."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from infra.fileroot.run_directory import list_runs
from schemas.states import RunStatus
from schemas.summary import RunSummary
from tests.support.engine_environment import CHECKPOINT, require_engine
from tests.support.evaluation_commands import Command
from tests.support.prefect_server import ask_api

pytestmark = [pytest.mark.needs_engine, pytest.mark.needs_prefect, pytest.mark.timeout(900)]

CONFIG = """
experiment_name: guards
actor: {path: CHECKPOINT, dtype: float32}
rollout: {backend: "vllm:d1"}
engine: {python: PYTHON, stand_in: {load_s: 0, step_s: 0}}
valid_dataset: {path: data.jsonl, name: sums}
gconfig: {max_new_tokens: 64}
cluster: {fileroot: out}
"""
Milepost = Callable[..., Command]


@pytest.fixture(autouse=True, scope="module")
def _checkpoint() -> None:
    require_engine()


@pytest.fixture
def milepost(environment: dict[str, str], api: str, tmp_path: Path) -> Milepost:
    """Starts a command in the test's folder, which has a configuration and 120 sums."""
    text = CONFIG.replace("CHECKPOINT", str(CHECKPOINT)).replace("PYTHON", sys.executable)
    (tmp_path / "config.yaml").write_text(text)
    write_sums(tmp_path / "data.jsonl", 120)

    def start(*arguments: str) -> Command:
        return Command(tmp_path, arguments, environment | {"PREFECT_API_URL": api}, cores=[0, 1])

    return start


def break_replica_1(folder: Path) -> str:
    """Return an interpreter that tells replica 1 of the first attempt to answer otherwise."""
    script = folder / "python"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "if '--wait' in sys.argv:\n"
        "    sys.exit('no worker starts ahead: its specification is to be found on the command line')\n"
        "for path in sys.argv[1:]:\n"
        "    if path.endswith('attempts/0001/replica-001/spec.json'):\n"
        "        spec = json.load(open(path))\n"
        "        spec['engine']['stand_in']['accuracy'] = 0.0\n"
        "        json.dump(spec, open(path, 'w'))\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])\n"
    )
    script.chmod(0o755)
    return str(script)


def write_sums(path: Path, count: int, *, first: int = 0, story: str = "") -> None:
    rows = [
        {"question": f"{story}What is {n} plus {n % 7}?", "answer": f"#### {n + n % 7}", "kind": f"k{n % 2}"}
        for n in range(first, first + count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluate(milepost: Milepost, *overrides: str) -> Command:
    return milepost("evaluate", "config.yaml", *overrides)


def stored(summary: RunSummary, table: str) -> list[dict[str, Any]]:
    rows = pyarrow.dataset.dataset(summary.store / table).to_table().to_pylist()
    return [row for row in rows if row["run_id"] == summary.run_id]


def events(api: str, name: str, dataset: str = "sums") -> list[dict[str, Any]]:
    """The events of a name that the server has, once it has any."""
    deadline = time.monotonic() + 60
    while True:
        found = ask_api(api, "events/filter", {"filter": {"event": {"name": [name]}}})
        payloads = [event["payload"] for event in found["events"] if event["payload"]["dataset"] == dataset]
        if payloads or time.monotonic() > deadline:
            return payloads
        time.sleep(0.5)


def test_drift_is_announced_and_fails_the_gate_that_asks(milepost: Milepost, api: str, tmp_path: Path) -> None:
    first = evaluate(milepost).summary()
    assert (first.has_drifted, first.consistency, first.alarms) == (False, "cannot_tell", ())

    write_sums(tmp_path / "data.jsonl", 120, story="Tom tells a long story about his aunt and her garden, then asks: ")
    again = evaluate(milepost, "--fail-on", "drift,inconsistency")
    message = again.failure(3, "gate failed: drift", "report.html")
    second = RunSummary.model_validate_json(again.document())
    assert "milepost.drift.detected" in message
    assert second.has_drifted
    drifted = {row["name"] for row in stored(second, "drift") if row["drifted"]}
    assert "prompt_length" in drifted
    page = (second.run_dir / "report.html").read_text("utf-8")
    assert "Drift." in page
    assert "<svg" in page
    (event,) = events(api, "milepost.drift.detected")
    assert "prompt_length" in event["features"]
    assert event["since"] == f"version {event['reference_version']}"

    # the same finding again is no news, and without the gate no failure
    third = evaluate(milepost).summary()
    assert third.has_drifted
    assert len(events(api, "milepost.drift.detected")) == 1

    milepost("drift", "config.yaml").failure(3)
    milepost("drift", "config.yaml", "drift.threshold=50").failure(2, "drift.threshold")


def test_a_drifted_pool_gives_a_new_version_that_links_to_the_old(milepost: Milepost, tmp_path: Path) -> None:
    pool = tmp_path / "pool.jsonl"
    write_sums(pool, 300, first=1000)
    refreshed = ("refresh.pool=[pool.jsonl]", "refresh.anchor_ratio=0.4")
    first = evaluate(milepost, *refreshed).summary()
    write_sums(pool, 300, first=1000, story="Tom tells a long story about his aunt and her garden, then asks: ")
    second = evaluate(milepost, *refreshed).summary()
    assert second.dataset_version != first.dataset_version
    assert second.num_planned == first.num_planned
    samples = pyarrow.dataset.dataset(second.store / "samples").to_table()
    prompts = [row["prompt"] for row in samples.to_pylist() if row["run_id"] == second.run_id]
    assert 60 <= sum("her garden" in prompt for prompt in prompts) < len(prompts), "anchors stay, the rest is new"

    linked = json.loads(milepost("compare", first.run_id, second.run_id, "--fileroot=out").success())
    assert linked["num_items"] == 48

    back = json.loads(milepost("refresh", "config.yaml", *refreshed, "--rollback", "v1").success())
    assert back["parent"] is None
    third = evaluate(milepost, *refreshed, "refresh.on=command").summary()
    assert third.dataset_version == first.dataset_version
    milepost("refresh", "config.yaml", *refreshed, "--rollback", "v9").failure(2, "v9")


def test_replicas_that_disagree_publish_nothing_until_told_to(milepost: Milepost, api: str, tmp_path: Path) -> None:
    broken = ("rollout.backend=vllm:d2", f"engine.python={break_replica_1(tmp_path)}")
    evaluate(milepost, *broken).failure(1, "the replicas disagree", "consistency.on_violation")
    (run,) = list_runs(tmp_path / "out")
    assert run.read_state().status is RunStatus.FAILED
    assert not (tmp_path / "out" / "store" / "metrics").exists()
    (event,) = [each for each in events(api, "milepost.consistency.violated") if each["run_id"] == run.run_id]
    assert 1 in event["replicas"]
    (failed,) = [each for each in events(api, "milepost.evaluation.failed") if each["run_id"] == run.run_id]
    assert [Path(each["link"]).name for each in (event, failed)] == [run.run_id] * 2

    evaluate(milepost, *broken, "consistency.on_violation=quarantine").failure(1, "nobody can say which")

    told = evaluate(milepost, *broken, "consistency.on_violation=warn", "--fail-on=inconsistency")
    told.failure(3, "gate failed: inconsistency")
    published = RunSummary.model_validate_json(told.document())
    assert (published.run_id, published.consistency) == (run.run_id, "disagree")
    assert published.num_resumed == published.num_planned == len(stored(published, "samples"))
    assert any(row["outcome"] == "violated" for row in stored(published, "consistency"))
    assert {row["replica"] for row in stored(published, "shards")} == {0, 1}
    assert any("disagree" in text for text in published.differences)


def test_outputs_are_compared_with_those_of_the_earlier_checkpoint(milepost: Milepost, tmp_path: Path) -> None:
    first = evaluate(milepost).summary()
    assert not [row for row in stored(first, "drift") if row["kind"] == "output"]

    trained = tmp_path / "checkpoint-2"
    shutil.copytree(CHECKPOINT, trained)
    with (trained / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, os.SEEK_END)
        last = weights.read(1)
        weights.seek(-1, os.SEEK_END)
        weights.write(bytes([last[0] ^ 1]))
    second = evaluate(milepost, f"actor.path={trained}", "engine.stand_in.mean_tokens=20").summary()
    outputs = {row["name"]: row for row in stored(second, "drift") if row["kind"] == "output"}
    assert outputs["response_length"]["drifted"]
    assert outputs["response_length"]["reference_version"] == first.run_id
    assert (second.has_drifted, second.alarms) == (False, ()), "a changed model is no drift of the dataset"
    assert f"Against run {first.run_id}" in (second.run_dir / "report.html").read_text("utf-8")

    # other settings: what differs would not be the model
    third = evaluate(milepost, "gconfig.max_new_tokens=32").summary()
    assert not [row for row in stored(third, "drift") if row["kind"] == "output"]
