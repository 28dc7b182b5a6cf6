"""A refused command leaves no empty folder, and takes nothing away that was there or holds a file."""

from pathlib import Path

import pytest

from infra.files.new_folders import empty_folders_removed


def make(root: Path, *files: str) -> None:
    (root / "store/.staging").mkdir(parents=True, exist_ok=True)
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("x", encoding="utf-8")
    raise KeyError


def refused(root: Path, *files: str) -> None:
    with pytest.raises(KeyError), empty_folders_removed(root, on=KeyError):
        make(root, *files)


@pytest.mark.parametrize("place", ["out", "a/b/out"])
def test_what_the_block_made_goes(tmp_path: Path, place: str) -> None:
    refused(tmp_path / place)
    assert list(tmp_path.iterdir()) == []


def test_files_stay_with_the_folders_around_them(tmp_path: Path) -> None:
    refused(tmp_path / "out", "refused_rows/d.jsonl")
    assert [path.name for path in sorted((tmp_path / "out").rglob("*"))] == ["refused_rows", "d.jsonl"]


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "out/mine").mkdir(parents=True)
    refused(tmp_path / "out")
    assert (tmp_path / "out/mine").is_dir()


def test_another_end_removes_nothing(tmp_path: Path) -> None:
    with empty_folders_removed(tmp_path / "out", on=KeyError):
        (tmp_path / "out/store").mkdir(parents=True)
    assert (tmp_path / "out/store").is_dir()
