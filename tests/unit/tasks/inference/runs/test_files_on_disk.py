"""The files that runs of earlier versions have on disk, byte for byte: a resumed run reads them, so they stay.

To accept a change: MILEPOST_ACCEPT=1 pytest tests/unit/tasks/inference/runs/test_files_on_disk.py
"""

import json
import os
from pathlib import Path

import pytest

from schemas.inference import Plan, WorkerSpec
from schemas.run import RunState
from tasks.inference.exchange.worker_files import write_spec
from tests.support.plans import plan_of
from tests.support.run_sessions import start

GOLDEN = Path(__file__).resolve().parents[4] / "golden" / "run"
MASKED = ("run_id", "started_at", "finished_at", "provenance", "wall_s", "config_digest")
"""What differs from run to run."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run that has begun, with names that are the same each time."""
    with start(tmp_path, num_items=2) as session:
        (spec,) = session.replicas.specs
        write_spec(spec)
        return session.record.run.path


def masked(value: object) -> object:
    if isinstance(value, dict):
        return {key: "…" if key in MASKED else masked(each) for key, each in value.items()}
    return [masked(each) for each in value] if isinstance(value, list) else value


def check(name: str, text: str) -> None:
    golden = GOLDEN / name
    if os.environ.get("MILEPOST_ACCEPT"):
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


def test_plan_json_and_its_key() -> None:
    check("plan.json", plan_of(2, 2, num_refused=1).model_dump_json(indent=1) + "\n")


@pytest.mark.parametrize("pattern", ["plan.json", "run.json", "attempts/*/*/spec.json"])
def test_what_a_run_that_has_begun_holds(folder: Path, pattern: str) -> None:
    (path,) = folder.glob(pattern)
    text = path.read_text("utf-8").replace(str(folder), "RUN").replace(str(folder.parents[1]), "FILEROOT")
    document = masked(json.loads(text))
    check(f"begun-{path.name}", json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def test_the_golden_files_are_read() -> None:
    """What this version writes is one thing; that it reads what is there is another."""
    plan = Plan.model_validate_json((GOLDEN / "plan.json").read_text("utf-8"))
    assert plan == plan_of(2, 2, num_refused=1)
    spec = json.loads((GOLDEN / "begun-spec.json").read_text("utf-8"))
    assert WorkerSpec.model_validate(spec | {"run_id": "r"}).sampling == plan.sampling
    assert set(json.loads((GOLDEN / "begun-run.json").read_text("utf-8"))) <= set(RunState.model_fields)
