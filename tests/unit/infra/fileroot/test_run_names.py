"""A part of a run's name stands for it where it is the part of one."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.fileroot.run_directory import create_run
from infra.fileroot.run_names import complete_run_name
from schemas.errors import StoreError


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
