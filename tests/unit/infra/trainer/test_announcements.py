"""Announcements on disk: what is written is read, and nothing else is."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from infra.trainer.announcements import SPOOL, Announcement, read_announcements, write_announcement

WRONG = '{"path": null, "global_step": 1, "epoch": null, "announced_at": 1.0}'


def announce(path: str, step: int | None, at: float = 1.0) -> Announcement:
    return Announcement(path=path, global_step=step, epoch=None, announced_at=at)


@given(st.text(), st.none() | st.integers(0, 2**62))
def test_what_is_written_is_read(path: str, step: int | None) -> None:
    with TemporaryDirectory() as folder:
        write_announcement(Path(folder), announce(path, step))
        assert read_announcements(Path(folder)) == [announce(path, step)]


def test_names_that_are_no_unicode_survive(tmp_path: Path) -> None:
    write_announcement(tmp_path, announce("ckpt\udcff\n$(x)", 1))
    assert read_announcements(tmp_path)[0].path == "ckpt\udcff\n$(x)"


def test_a_checkpoint_that_is_announced_again_replaces_its_announcement(tmp_path: Path) -> None:
    for path, step, at in (("a", 1, 5.0), ("b", 2, 2.0), ("a", 1, 9.0)):
        write_announcement(tmp_path, announce(path, step, at))
    assert [(one.path, one.announced_at) for one in read_announcements(tmp_path)] == [("b", 2.0), ("a", 9.0)]


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    assert read_announcements(tmp_path) == []
    write_announcement(tmp_path, announce("a", 1))
    for name, text in (
        ("x.json", "{"),
        ("y.json", "[]"),
        ("z.json", '{"path": 1}'),
        (".half.tmp", "{}"),
        ("w.json", WRONG),
    ):
        (tmp_path / SPOOL / name).write_text(text)
    assert [one.path for one in read_announcements(tmp_path)] == ["a"]
