"""One alert per cause: a training that degenerates at some step is told of once, whatever the order of evaluation."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.fileroot.run_directory import create_run
from infra.store import open_store
from schemas.config import EvaluationConfig, config_to_yaml
from schemas.degeneration import SignName
from schemas.events import GenerationDegenerate
from schemas.inference import Plan
from schemas.run import RunState
from schemas.sampling import SamplingSpec
from schemas.states import RunStatus
from tasks.alerts.ledger import enter_record, make_record
from tasks.degeneration.news import find_events
from tasks.degeneration.stage import check_degeneration
from tasks.inference.runs.record import RunRecord
from tests.support.store_tables import run_tables

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CUT: Final[SignName] = "stopped_by_length"
NONE: Final[SignName] = "without_answer"


class Training:
    """A training whose checkpoints show what a test says; their runs are real but for the samples."""

    def __init__(self, fileroot: Path, trial: str = "t") -> None:
        document = {
            "experiment_name": "e",
            "trial_name": trial,
            "cluster": {"fileroot": str(fileroot)},
            "actor": {"path": "checkpoint"},
            "valid_dataset": {"path": "sums.jsonl"},
        }
        self.config = EvaluationConfig.model_validate(document)
        self._fileroot = fileroot
        self._started = 0

    def evaluate(
        self, step: int | None, *signs: SignName, weights: str = "", version: str = "v", max_new_tokens: int = 8
    ) -> list[GenerationDegenerate]:
        """Check and publish a run, and return what there was to tell of it."""
        self._started += 1
        events = list(self._check(step, signs, weights or f"w{step}", version, max_new_tokens))
        return [event for event in events if self._tell(event)]

    def _check(
        self, step: int | None, signs: tuple[SignName, ...], weights: str, version: str, max_new_tokens: int
    ) -> list[GenerationDegenerate]:
        config, plan = self.config, make_plan(weights, version, max_new_tokens)
        now = NOW + timedelta(seconds=self._started)
        run, ownership = create_run(self._fileroot, plan.plan_key, now)
        state = RunState(
            run_id=run.run_id,
            plan_key=plan.plan_key,
            experiment_name=config.experiment_name,
            trial_name=config.trial_name,
            checkpoint=f"step-{step}",
            global_step=step,
            status=RunStatus.RUNNING,
            started_at=now,
        )
        run.plan_path.write_text(plan.model_dump_json())
        run.config_path.write_text(config_to_yaml(config))
        sample = {
            "completion": "I do not know.",
            "finish_reason": "length" if CUT in signs else "stop",
            "verdict": "no_answer" if NONE in signs else "correct",
        }
        pq.write_table(pa.Table.from_pylist([sample | {"item_id": f"i{n}"} for n in range(40)]), run.samples_path)
        with RunRecord(run, ownership, plan, state) as record:
            report = check_degeneration(config, record)
            assert report.raised == signs
            events = list(find_events(record.identity, run, report))
            columns = record.identity.model_dump(exclude={"run_id", "experiment_name"})
            tables = run_tables(run.run_id, config.experiment_name, **columns, finished_at=now, engine=plan.engine)
            open_store(self._fileroot).publish(run.run_id, config.experiment_name, tables)
        return events

    def _tell(self, event: GenerationDegenerate) -> bool:
        folder = self._fileroot / "alerts"
        record = make_record(folder, event, training="", silence=timedelta(0), now=NOW)
        if record is not None:
            enter_record(folder, record)
        return record is not None


def make_plan(weights: str, version: str, max_new_tokens: int) -> Plan:
    sampling = SamplingSpec(temperature=0.0, top_p=1.0, top_k=-1, max_new_tokens=max_new_tokens, eos_token_ids=())
    return Plan(
        plan_key=f"{weights}-{version}-{max_new_tokens}",
        seed=1,
        n_samples=1,
        engine="stand_in",
        dtype="float32",
        weight_digest=weights,
        tokenizer_digest="t",
        chat_template_digest="c",
        dataset="sums",
        dataset_version=version,
        sampling=sampling,
        max_model_len=64,
        items=(),
    )


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


def test_a_model_that_loops_from_some_step_on_is_told_of_once(training: Training) -> None:
    assert training.evaluate(100) == []
    (event,) = training.evaluate(200, CUT)
    assert (event.signs, event.checkpoint, event.since) == ((CUT,), "step-200", f"step 200, run {event.run_id}")
    assert event.message == "1.000 of the completions are cut at the longest length (threshold 0.500)"
    assert [training.evaluate(step, CUT) for step in (300, 400, 500)] == [[], [], []]


def test_a_run_of_an_earlier_version_says_since_when_at_least(training: Training, tmp_path: Path) -> None:
    assert training.evaluate(100, CUT)
    (path,) = tmp_path.glob("runs/*/degeneration.json")
    report = json.loads(path.read_text())
    for sign in report["signs"]:
        del sign["onset"]
    path.write_text(json.dumps(report))
    (event,) = training.evaluate(200, CUT)
    assert event.since.startswith("step 100, ")
    assert training.evaluate(300, CUT) == []


def test_a_run_that_is_graded_again_breaks_no_row(training: Training, tmp_path: Path) -> None:
    (event,) = training.evaluate(100, CUT)
    columns = {"trial_name": "t", "checkpoint": "step-100", "weight_digest": "w100", "global_step": 100}
    versions = {"dataset": "sums", "dataset_version": "v", "finished_at": NOW + timedelta(days=1)}
    tables = run_tables("again", "e", **columns, **versions, regrade_of=event.run_id)
    open_store(tmp_path).publish("again", "e", tables)
    assert training.evaluate(200, CUT) == []


def test_what_comes_back_is_told_anew(training: Training) -> None:
    told = [training.evaluate(1, CUT), training.evaluate(2), training.evaluate(3, CUT), training.evaluate(4, CUT)]
    assert [[event.checkpoint for event in events] for events in told] == [["step-1"], [], ["step-3"], []]


def test_a_sign_that_joins_another_is_told_by_itself(training: Training) -> None:
    training.evaluate(1, CUT)
    (event,) = training.evaluate(2, CUT, NONE)
    assert (event.signs, event.message.count("completions")) == ((NONE,), 1)
    assert training.evaluate(3, NONE) == []


def test_signs_that_begin_together_are_one_message(training: Training) -> None:
    (event,) = training.evaluate(1, CUT, NONE)
    assert event.signs == (CUT, NONE)


def test_a_backlog_from_its_newest_end_is_told_once(training: Training) -> None:
    told = [training.evaluate(step, CUT) for step in (400, 100, 300, 200, 500)]
    assert [len(events) for events in told] == [1, 0, 0, 0, 0]


def test_what_nobody_could_hear_is_told_with_the_next_and_since_when(training: Training, tmp_path: Path) -> None:
    (first,) = training.evaluate(100, CUT)
    for record in (tmp_path / "alerts").iterdir():
        record.unlink()
    (event,) = training.evaluate(200, CUT)
    assert (event.checkpoint, event.since) == ("step-200", f"step 100, run {first.run_id}")
    assert event.cause == first.cause


def test_a_checkpoint_that_is_evaluated_again_is_no_news(training: Training) -> None:
    assert len(training.evaluate(1, CUT)) == 1
    assert training.evaluate(1, CUT) == []
    assert training.evaluate(2, CUT) == []


def test_a_new_version_of_the_dataset_is_no_news_and_other_settings_are(training: Training) -> None:
    assert len(training.evaluate(1, CUT)) == 1
    assert training.evaluate(2, CUT, version="refreshed") == []
    assert len(training.evaluate(3, CUT, max_new_tokens=16)) == 1


def test_without_steps_the_order_is_that_of_publication(training: Training) -> None:
    assert [len(training.evaluate(None, CUT, weights=weights)) for weights in ("a", "b", "c")] == [1, 0, 0]


def test_two_trainings_from_the_same_weights_are_two_causes(tmp_path: Path) -> None:
    assert [len(Training(tmp_path, trial).evaluate(0, CUT)) for trial in ("t1", "t2")] == [1, 1]
