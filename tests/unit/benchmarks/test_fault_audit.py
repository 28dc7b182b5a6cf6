"""The audit of a fault campaign finds each kind of damage that it exists to find."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.faults.audit import Audit, Sample, audit
from infra.store import open_store
from schemas.identity import SampleKey
from schemas.inference import SampleRecord
from schemas.states import FinishReason
from schemas.tables import RUNS, SAMPLES
from tasks.inference.exchange.journal import JournalWriter
from tests.support.store_tables import filled

A, B = SampleKey("a", 0), SampleKey("b", 0)
RUN = "r1"
FAULT_AT = 100.0


def sample(text: str | None = "text", verdict: str = "correct") -> Sample:
    return Sample("hash", text, "stop" if text else None, 7, verdict, None, None)


EXPECTED: Mapping[SampleKey, Sample | None] = {A: sample(), B: sample("other")}


def journal(fileroot: Path, worker: str, finished: Mapping[SampleKey, float], latency_s: float = 2.0) -> None:
    run = fileroot / "runs" / RUN
    writer = JournalWriter(run / "attempts" / worker)
    (run / "run.json").touch()
    for key, finished_at in finished.items():
        record = SampleRecord(
            item_id=key.item_id,
            repeat=key.repeat,
            prompt_hash="hash",
            completion="text",
            finish_reason=FinishReason.STOP,
            num_prompt_tokens=1,
            num_completion_tokens=1,
            mean_logprob=None,
            seed=7,
            latency_s=latency_s,
            batch_size=1,
            replica=0,
            attempt=1,
            finished_at=finished_at,
        )
        writer.append(record)


def publish(fileroot: Path, rows: Sequence[tuple[SampleKey, Sample]]) -> None:
    names = {"run_id": RUN, "experiment_name": "exp"}
    samples = [{**names, **key._asdict(), **row._asdict()} for key, row in rows]
    open_store(fileroot).publish(RUN, "exp", {"runs": filled(RUNS, [names]), "samples": filled(SAMPLES, samples)})


def test_a_run_without_damage_is_sound(tmp_path: Path) -> None:
    journal(tmp_path, "0001/replica-000", {A: 90.0, B: 110.0})
    publish(tmp_path, [(A, sample()), (B, sample("other"))])
    found = audit(tmp_path, EXPECTED, FAULT_AT)
    assert found == Audit(0, 0, 0, 0, 0)
    assert found.is_sound


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([], Audit(2, 0, 0, 0, 0)),
        ([(A, sample())], Audit(1, 0, 0, 0, 0)),
        ([(A, sample()), (A, sample()), (B, sample("other"))], Audit(0, 1, 0, 0, 0)),
        ([(A, sample()), (B, sample("changed"))], Audit(0, 0, 1, 0, 0)),
        ([(A, sample()), (B, sample(None, "failed"))], Audit(0, 0, 1, 0, 0)),
        ([(A, sample()), (B, sample("other")), (SampleKey("c", 0), sample())], Audit(0, 0, 1, 0, 0)),
    ],
)
def test_what_is_published_is_held_against_the_undisturbed_run(
    tmp_path: Path, rows: Sequence[tuple[SampleKey, Sample]], found: Audit
) -> None:
    if rows:
        publish(tmp_path, rows)
    assert audit(tmp_path, EXPECTED, FAULT_AT) == found
    assert not found.is_sound


def test_an_impossible_sample_must_have_failed(tmp_path: Path) -> None:
    publish(tmp_path, [(A, sample()), (B, sample(None, "failed"))])
    assert audit(tmp_path, {A: sample(), B: None}, None).is_sound
    assert audit(tmp_path, {A: None, B: None}, None).num_wrong == 1


@pytest.mark.parametrize(
    ("first_at", "again_at", "fault_at", "num_late"),
    [
        (98.0, 120.0, FAULT_AT, 1),  # finished two seconds before
        (99.5, 120.0, FAULT_AT, 0),  # too short before
        (105.0, 120.0, FAULT_AT, 0),  # by a worker that the fault did not end
        (98.0, 99.5, FAULT_AT, 0),  # both were under way at the same time
        (98.0, 120.0, None, 1),
        (119.0, 120.0, None, 0),
    ],
)
def test_a_sample_made_again_is_late_when_it_had_been_safe(
    tmp_path: Path, first_at: float, again_at: float, fault_at: float | None, num_late: int
) -> None:
    publish(tmp_path, [(A, sample()), (B, sample("other"))])
    journal(tmp_path, "0001/replica-000", {A: first_at, B: 90.0})
    journal(tmp_path, "0002/replica-000", {A: again_at})
    assert audit(tmp_path, EXPECTED, fault_at) == Audit(0, 0, 0, 1, num_late)
