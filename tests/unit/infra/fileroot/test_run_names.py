"""A part of a run's name stands for it where it is the part of one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.fileroot.run_directory import create_run
from infra.fileroot.run_names import complete_run_name
from schemas.errors import StoreError
from tests.support.training_stores import FIRST, publish_run


@pytest.fixture
def fileroot(tmp_path: Path) -> Path:
    for key, day in (("abcd0000ffff", 2), ("abcd0000ffff", 3), ("ef012345ffff", 3)):
        run, ownership = create_run(tmp_path, key, datetime(2026, 1, day, 3, 4, 5, tzinfo=UTC))
        (run.path / "run.json").touch()
        ownership.release()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ef01", "20260103-030405-ef012345"),
        ("0102-0304", "20260102-030405-abcd0000"),
        ("20260103-030405-abcd0000", "20260103-030405-abcd0000"),
        ("nothing", "nothing"),
        ("ef", "ef"),
    ],
)
def test_a_part_of_one_name_is_enough(fileroot: Path, text: str, name: str) -> None:
    assert complete_run_name(fileroot, text) == name


def test_a_part_of_several_names_is_refused(fileroot: Path) -> None:
    with pytest.raises(StoreError, match=r"'abcd' is part of 2 runs' names.*20260102-030405-abcd0000, 20260103"):
        complete_run_name(fileroot, "abcd")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    publish_run(folder, "other", right=60, step=1, trial_name="other")
    for step, right in ((100, 20), (200, 45), (300, 44), (250, 10)):
        publish_run(folder, f"run-{step}", right=right, step=step)
    publish_run(folder, "run-200-again", right=40, step=200, finished_at=FIRST + timedelta(hours=210))
    publish_run(folder, "easy", right=59, step=10, dataset_version="v0")
    publish_run(folder, "another-set", right=59, step=200, dataset="x")
    return folder


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("latest", "run-300"),
        ("previous", "run-250"),
        ("best", "run-200"),
        ("step=200", "run-200-again"),
        ("/ckpt/100", "run-100"),
        ("/ckpt/100/", "run-100"),
        ("/ckpt/101", "/ckpt/101"),
    ],
)
def test_a_place_in_training_is_a_name(trained: Path, text: str, name: str) -> None:
    assert complete_run_name(trained, text) == name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step=101", r"no run of exp/a on gsm8k, whose last run is run-300, is of step 101; its last steps: 10, 100"),
        ("step=", "write step=N"),
        ("step=4e2", "write step=N"),
        ("/ckpt/200", "evaluated on 2 datasets; name one of the runs: run-200-again on gsm8k, another-set on x"),
    ],
)
def test_a_place_that_no_run_has_is_rejected(trained: Path, text: str, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        complete_run_name(trained, text)


@pytest.mark.parametrize("text", ["latest", "previous", "best", "step=1"])
def test_nothing_published_has_no_places(tmp_path: Path, text: str) -> None:
    with pytest.raises(StoreError, match="no run is published"):
        complete_run_name(tmp_path, text)


def test_one_checkpoint_has_none_before_it(tmp_path: Path) -> None:
    publish_run(tmp_path, "only", right=1)
    with pytest.raises(StoreError, match="no checkpoint before the last one of exp/a on gsm8k"):
        complete_run_name(tmp_path, "previous")
