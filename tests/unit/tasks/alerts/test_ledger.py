"""A cause is told once, but not before somebody could hear it; silence is kept about a subject, not about others."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from schemas.alerts import AlertRecord
from schemas.errors import ConfigError, DatasetError, LaunchError, SetupError, TransientError
from schemas.events import ConsistencyViolated, DriftDetected, EvaluationFailed, Event
from schemas.run import RunIdentity
from tasks.alerts.ledger import (
    digest_problem,
    end_failures,
    enter_record,
    make_record,
    read_ledger,
    to_alert_table,
    was_told,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NONE = timedelta(0)


def failed(run_id: str = "r1", *, error: str = "WorkerError", dataset: str = "gsm8k") -> EvaluationFailed:
    return EvaluationFailed(checkpoint="ckpt", global_step=3, message="no", run_id=run_id, dataset=dataset, error=error)


def tell(
    folder: Path,
    event: Event,
    *,
    silence: timedelta = NONE,
    now: datetime = NOW,
    training: str = "e/t",
    told: bool = True,
) -> AlertRecord | None:
    record = make_record(folder, event, training=training, silence=silence, now=now)
    if record is not None:
        enter_record(folder, record.model_copy(update={"told": told}))
    return record


def test_the_same_cause_is_entered_once_however_its_words_differ(tmp_path: Path) -> None:
    first = tell(tmp_path, failed())
    again = failed().model_copy(update={"message": "no, still"})
    assert first is not None
    assert not first.silenced
    assert tell(tmp_path, again, now=NOW + timedelta(days=30)) is None
    assert read_ledger(tmp_path) == [first]


@pytest.mark.parametrize("other", [failed("r2"), failed(error="EngineError")])
def test_another_run_or_error_is_another_cause(tmp_path: Path, other: Event) -> None:
    assert tell(tmp_path, failed())
    assert tell(tmp_path, other)


@pytest.mark.parametrize(
    ("other", "after", "silenced"),
    [
        (failed("r2"), timedelta(hours=5), True),
        (failed("r2"), timedelta(hours=6), False),
        (failed("r2", dataset="math"), timedelta(hours=1), False),
        (
            ConsistencyViolated(
                checkpoint="c",
                global_step=1,
                message="",
                run_id="r1",
                dataset="gsm8k",
                replicas=(0,),
                consequence="warn",
            ),
            timedelta(hours=1),
            False,
        ),
    ],
)
def test_silence_is_kept_for_its_time_about_kind_and_dataset(
    tmp_path: Path, other: Event, after: timedelta, silenced: bool
) -> None:
    silence = timedelta(hours=6)
    assert tell(tmp_path, failed(), silence=silence, now=NOW)
    record = tell(tmp_path, other, silence=silence, now=NOW + after)
    assert record is not None
    assert record.silenced is silenced


def test_a_silenced_alert_does_not_prolong_the_silence(tmp_path: Path) -> None:
    silence = timedelta(hours=6)
    records = [tell(tmp_path, failed(f"r{n}"), silence=silence, now=NOW + n * timedelta(hours=4)) for n in range(4)]
    assert [record and record.silenced for record in records] == [False, True, False, True]


def test_a_cause_that_outlasts_the_silence_is_told_then(tmp_path: Path) -> None:
    silence = timedelta(hours=6)
    assert tell(tmp_path, failed(), silence=silence)
    records = [
        tell(tmp_path, failed("r2"), silence=silence, now=NOW + timedelta(hours=hours)) for hours in (1, 5, 8, 20)
    ]
    assert [record and record.silenced for record in records] == [True, None, False, None]


def test_what_nobody_heard_is_told_at_the_next_occasion_and_keeps_nothing_silent(tmp_path: Path) -> None:
    silence = timedelta(hours=6)
    assert tell(tmp_path, failed(), silence=silence, told=False)
    other = tell(tmp_path, failed("r2"), silence=silence, told=False)
    assert other is not None
    assert not other.silenced
    assert tell(tmp_path, failed(), silence=silence)
    assert tell(tmp_path, failed(), silence=silence) is None
    assert [record.told for record in read_ledger(tmp_path)].count(True) == 1


@pytest.mark.parametrize(
    ("first", "second", "is_news"),
    [
        (DatasetError("v.jsonl: row 3: no gold"), DatasetError("v.jsonl: row 7: no gold"), True),
        (DatasetError("v.jsonl does not exist"), DatasetError("column 'gold' is not in the data"), True),
        (ConfigError("actor.dtype is 'x'"), ConfigError("seed is -1"), True),
        (DatasetError("v.jsonl: row 3: no gold"), DatasetError("v.jsonl: row 3: no gold"), False),
        (
            DatasetError("no answer from <Connection object at 0x7f12ab34cd56> (Request ID: Root=1-67a0b1c2-0f0f0f0f)"),
            DatasetError("no answer from <Connection object at 0x7f12ab39ffff> (Request ID: Root=1-67b9b9b9-1e1e1e1e)"),
            False,
        ),
        (LaunchError("3 GPUs of 8 are left"), LaunchError("2 GPUs of 8 are left"), False),
        (SetupError("the disk has 3 GB left"), SetupError("the disk has 2 GB left"), False),
        (TransientError("no reply in 3 s"), TransientError("no reply in 4 s"), False),
    ],
)
def test_another_mistake_in_the_input_is_news_and_another_report_of_it_is_none(
    tmp_path: Path, first: Exception, second: Exception, *, is_news: bool
) -> None:
    events = [
        failed("", error=type(error).__name__).model_copy(update={"problem": digest_problem(error)})
        for error in (first, second)
    ]
    assert tell(tmp_path, events[0])
    assert (tell(tmp_path, events[1], now=NOW + timedelta(days=1)) is not None) is is_news
    end_failures(tmp_path, checkpoint="ckpt", subject="gsm8k")
    assert all(tell(tmp_path, event, now=NOW + timedelta(days=2)) for event in {e.event_id: e for e in events}.values())


def test_a_failure_is_news_again_once_an_evaluation_of_the_same_has_completed(tmp_path: Path) -> None:
    others = [failed("", dataset="math"), failed("").model_copy(update={"checkpoint": "other"})]
    first = tell(tmp_path, failed(""))
    assert first is not None
    assert all(tell(tmp_path, other) for other in others)
    told = [first.event_id]
    for hour in (1, 2):
        end_failures(tmp_path, checkpoint="ckpt", subject="gsm8k")
        again = tell(tmp_path, failed(""), now=NOW + timedelta(hours=hour))
        assert again is not None
        assert tell(tmp_path, failed("")) is None
        told.append(again.event_id)
    assert len(set(told)) == 3  # the server drops what it has had
    assert [tell(tmp_path, other) for other in others] == [None, None]
    assert len(read_ledger(tmp_path)) == 5


def test_a_completion_breaks_no_silence(tmp_path: Path) -> None:
    silence = timedelta(hours=6)
    assert tell(tmp_path, failed(""), silence=silence)
    end_failures(tmp_path, checkpoint="ckpt", subject="gsm8k")
    again = tell(tmp_path, failed(""), silence=silence, now=NOW + timedelta(hours=1))
    assert again is not None
    assert again.silenced


def test_a_process_that_is_killed_before_it_enters_tells_again(tmp_path: Path) -> None:
    first = make_record(tmp_path, failed(), training="e/t", silence=NONE, now=NOW)
    assert first is not None
    assert make_record(tmp_path, failed(), training="e/t", silence=NONE, now=NOW) == first


def test_a_training_silences_no_other(tmp_path: Path) -> None:
    silence = timedelta(hours=6)
    tell(tmp_path, failed(), silence=silence, training="a/t")
    other = tell(tmp_path, failed("r2"), silence=silence, training="b/t")
    assert other is not None
    assert not other.silenced


def test_a_file_that_is_no_record_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / f"{failed().event_id}.json").write_text('{"event": "mile')
    assert read_ledger(tmp_path) == []
    assert tell(tmp_path, failed())


def test_the_table_has_what_was_told_of_the_checkpoint_on_the_dataset(tmp_path: Path) -> None:
    for event in (failed(), failed("r2"), failed(dataset="math"), failed("r3").model_copy(update={"checkpoint": "b"})):
        tell(tmp_path, event)
    identity = RunIdentity(
        run_id="r9",
        experiment_name="e",
        trial_name="t",
        checkpoint="ckpt",
        weight_digest="0",
        global_step=3,
        dataset="gsm8k",
        dataset_version="1",
    )
    table = to_alert_table(read_ledger(tmp_path), identity)
    assert table.column("run_id").to_pylist() == ["r9", "r9"]
    assert set(table.column("event_id").to_pylist()) == {str(failed().event_id), str(failed("r2").event_id)}


def test_a_ledger_that_cannot_be_written_silences_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "alerts").write_text("a file")
    assert tell(tmp_path / "alerts", failed())
    assert "cannot be written" in caplog.text


def test_the_id_of_a_drift_follows_the_versions_and_features_alone() -> None:
    drift = DriftDetected(
        checkpoint="a",
        global_step=1,
        message="x",
        dataset="d",
        reference_version="1",
        current_version="2",
        features=("length",),
        broken_rules=(),
    )
    same = drift.model_copy(update={"checkpoint": "b", "global_step": 2, "message": "y", "since": "z"})
    assert same.event_id == drift.event_id
    assert drift.model_copy(update={"current_version": "3"}).event_id != drift.event_id


def test_what_is_given_up_is_a_cause_of_its_own_and_not_told_where_its_failure_was(tmp_path: Path) -> None:
    first, again = (failed("", error="GivenUp").model_copy(update={"series": series}) for series in ("a", "b"))
    assert len({first.event_id, again.event_id, failed("", error="GivenUp").event_id}) == 3
    tell(tmp_path, failed(), told=False)
    assert not was_told(tmp_path, first, since=None)
    tell(tmp_path, failed())
    assert was_told(tmp_path, first, since=None)
    assert was_told(tmp_path, first, since=NOW)
    assert not was_told(tmp_path, first, since=NOW + timedelta(hours=1))
    assert not was_told(tmp_path, first.model_copy(update={"checkpoint": "other"}), since=None)
    assert not was_told(tmp_path, first.model_copy(update={"dataset": "other"}), since=None)
