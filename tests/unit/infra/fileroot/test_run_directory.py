"""A run has one owner, and only its own unfinished run is continued."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.fileroot.run_directory import RunDirectory, create_run, find_resumable, list_runs
from infra.ownership.run_ownership import RunOwnership
from schemas.errors import StoreError
from schemas.run import RunState
from schemas.states import RunStatus

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = "0123456789abcdef"


def finish(run: RunDirectory, status: RunStatus, *, key: str = KEY, trial: str = "t") -> None:
    run.write_state(
        RunState(
            run_id=run.run_id,
            plan_key=key,
            experiment_name="e",
            trial_name=trial,
            checkpoint="c",
            global_step=None,
            status=status,
            started_at=NOW,
        )
    )


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path) -> None:
    first, _ = create_run(tmp_path, KEY, NOW)
    second, _ = create_run(tmp_path, KEY, NOW)
    assert (first.run_id, second.run_id) == ("20260102-030405-01234567", "20260102-030405-01234567-2")


def test_an_abandoned_run_is_found_and_an_owned_one_is_not(tmp_path: Path) -> None:
    run, lock = create_run(tmp_path, KEY, NOW)
    finish(run, RunStatus.RUNNING)
    assert find_resumable(tmp_path, KEY, "e", "t") is None
    lock.release()
    found = find_resumable(tmp_path, KEY, "e", "t")
    assert found is not None
    assert found[0] == run
    assert find_resumable(tmp_path, KEY, "e", "t") is None


@pytest.mark.parametrize(
    ("status", "key", "trial"),
    [(RunStatus.COMPLETED, KEY, "t"), (RunStatus.FAILED, KEY[:8] + "ffffffff", "t"), (RunStatus.FAILED, KEY, "other")],
)
def test_a_finished_run_or_another_plan_is_left_alone(tmp_path: Path, status: RunStatus, key: str, trial: str) -> None:
    run, lock = create_run(tmp_path, key, NOW)
    finish(run, status, key=key, trial=trial)
    lock.release()
    assert find_resumable(tmp_path, KEY, "e", "t") is None
    assert RunOwnership.acquire(run.path) is not None


def test_a_folder_without_state_is_no_run(tmp_path: Path) -> None:
    create_run(tmp_path, KEY, NOW)
    assert list(list_runs(tmp_path)) == []


@pytest.mark.parametrize("text", ["", "{}", '{"run_id": 1}', "not json"])
def test_an_unreadable_state_or_plan_says_what_to_remove(tmp_path: Path, text: str) -> None:
    run, _ = create_run(tmp_path, KEY, NOW)
    (run.path / "run.json").write_text(text)
    run.plan_path.write_text(text)
    with pytest.raises(StoreError, match="remove"):
        run.read_state()
    with pytest.raises(StoreError, match="remove"):
        run.read_plan()
