"""What is no number is no score, ends a worker that makes nothing else, and costs a healthy one nothing."""

from pathlib import Path

import pytest

from infra.engines.base import Generation
from infra.fileroot.run_directory import RunDirectory
from schemas.errors import EngineError
from schemas.inference import WorkerResult
from schemas.states import FinishReason, WorkerOutcome
from tasks.inference.exchange.journal import JournalWriter
from tasks.inference.exchange.worker_files import write_result
from tasks.inference.worker.broken_numbers import BROKEN, NumbersCheck, set_aside_broken
from tests.support.sample_records import record


def generation(num_tokens: int, *broken: int) -> Generation:
    return Generation(
        request_id="r",
        text="text",
        token_ids=tuple(range(100, 100 + num_tokens)),
        finish_reason=FinishReason.LENGTH,
        mean_logprob=None if broken else -1.0,
        entropy=None,
        latency_s=0.1,
        num_broken=len(broken),
        broken_at=broken[0] if broken else None,
    )


@pytest.mark.parametrize(
    ("num_tokens", "broken", "is_broken"),
    [(4, (), False), (4, (1,), False), (4, (0, 1), False), (4, (1, 2, 3), True), (1, (0,), True), (0, (), False)],
)
def test_a_sample_is_broken_when_most_of_its_tokens_are(
    num_tokens: int, broken: tuple[int, ...], is_broken: bool
) -> None:
    said = NumbersCheck("samples").note("i", generation(num_tokens, *broken))
    assert (said is not None) is is_broken
    if said is not None:
        first = f"first token {broken[0]} (id {100 + broken[0]})"
        assert said == f"{BROKEN}: {len(broken)} of {num_tokens} tokens have no finite log-probability, {first}"


@pytest.mark.parametrize(
    ("sound", "broken", "ends", "ends_at_last"),
    [
        (0, 1, False, True),
        (0, 7, False, True),
        (0, 8, True, True),
        (1, 1, False, False),
        (3, 5, True, True),
        (4, 4, False, False),
        (99, 1, False, False),
        (2, 0, False, False),
        (0, 0, False, False),
    ],
)
def test_a_worker_ends_when_most_of_its_samples_are(sound: int, broken: int, ends: bool, ends_at_last: bool) -> None:
    check = NumbersCheck("samples")
    for number in range(sound):
        check.note(f"sound-{number}", generation(2))
    for number in range(broken):
        check.note(f"broken-{number}", generation(2, 0, 1))
    for is_last, raises in ((False, ends), (True, ends_at_last)):
        if raises:
            with pytest.raises(EngineError, match=f"in {broken} of {sound + broken} samples; item 'broken-0': 2 of 2"):
                check.check(is_last=is_last)
        else:
            check.check(is_last=is_last)


@pytest.mark.parametrize(
    ("num_broken", "outcome", "is_set_aside"),
    [
        (3, None, True),
        (3, WorkerOutcome.FAILED, True),
        (2, WorkerOutcome.FAILED, False),
        (3, WorkerOutcome.COMPLETED, False),
    ],
)
def test_what_a_broken_worker_made_is_made_again(
    tmp_path: Path, num_broken: int, outcome: WorkerOutcome | None, is_set_aside: bool
) -> None:
    run = RunDirectory(path=tmp_path)
    folder = run.replica_dir(1, 0)
    journal = JournalWriter(folder)
    for number in range(1, 6):
        made = record(number)
        is_broken = number <= num_broken
        journal.append(made.model_copy(update={"error": f"{BROKEN}: 2 of 2 tokens" if is_broken else None}))
    journal.close()
    if outcome is not None:
        write_result(folder, WorkerResult(outcome=outcome))
    assert set_aside_broken(run) == is_set_aside
    assert bool(run.quarantined_dirs()) is is_set_aside
    assert set_aside_broken(run) == 0


def test_one_token_alone_ends_no_worker() -> None:
    check = NumbersCheck("samples")
    assert check.note("i", generation(1, 0)) is not None
    check.check(is_last=True)
    check.note("j", generation(1, 0))
    with pytest.raises(EngineError, match="in 2 of 2 samples"):
        check.check(is_last=True)
