"""When a checkpoint counts as whole: its trainer's sign, an announcement, a newer sibling, or quiet."""

import json
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from infra.checkpoints.folder_state import read_state
from infra.trainer.announcements import Announcement, write_announcement
from tasks.watching.observation import Observation, Observer
from tests.support.checkpoint_folders import make_checkpoint, safetensors

LONG_S = 3600.0


def names(seen: Observation) -> tuple[list[str], list[str], list[str]]:
    """Folders that are whole, pending and gone."""
    return (
        [one.found.folder.name for one in seen.whole],
        [one.found.folder.name for one in seen.pending],
        [one.found.folder.name for one in seen.gone],
    )


def known(seen: Observation) -> set[str]:
    return {one.state.mark for one in seen.whole}


def test_an_unmarked_checkpoint_is_whole_once_it_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(tmp_path / "final")
    (waiting,) = Observer(tmp_path, settle_s=LONG_S).look(()).pending
    assert (waiting.found.folder.name, waiting.has_rested) == ("final", False)
    observer, state = Observer(tmp_path, settle_s=30.0), read_state(tmp_path / "final", tmp_path / "final")
    assert state is not None
    monkeypatch.setattr("tasks.watching.observation.time", SimpleNamespace(time=lambda: state.changed_s + 29))
    assert names(observer.look(())) == ([], ["final"], [])
    monkeypatch.setattr("tasks.watching.observation.time", SimpleNamespace(time=lambda: state.changed_s + 31))
    seen = observer.look(())
    assert names(seen) == (["final"], [], [])
    assert names(observer.look(known(seen))) == ([], [], []), "what is known is not looked at again"


def test_a_newer_sibling_shows_that_the_older_is_finished(tmp_path: Path) -> None:
    observer = Observer(tmp_path, settle_s=LONG_S)
    make_checkpoint(tmp_path / "epoch0epochstep1globalstep1")
    (tmp_path / "other").mkdir()
    make_checkpoint(tmp_path / "other" / "epoch0epochstep9globalstep9")
    assert names(observer.look(()))[0] == []
    time.sleep(0.02)
    make_checkpoint(tmp_path / "epoch0epochstep3globalstep3")
    assert names(observer.look(()))[0] == ["epoch0epochstep1globalstep1"]


def test_a_sibling_of_an_earlier_training_shows_nothing(tmp_path: Path) -> None:
    observer = Observer(tmp_path, settle_s=LONG_S)
    again = make_checkpoint(tmp_path / "checkpoint-200", num_shards=2)
    time.sleep(0.02)
    make_checkpoint(tmp_path / "checkpoint-300")
    assert names(observer.look(()))[0] == ["checkpoint-200"]
    time.sleep(0.02)
    first, second = sorted(again.glob("*.safetensors"))
    first.write_bytes(first.read_bytes())
    assert names(observer.look(()))[0] == [], "the second shard is still the old one"
    time.sleep(0.02)
    second.write_bytes(second.read_bytes())
    make_checkpoint(tmp_path / "checkpoint-300")
    assert names(observer.look(()))[0] == ["checkpoint-200"]


def test_the_trainers_mark_needs_no_rest(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint-3")
    observer = Observer(tmp_path, settle_s=LONG_S)
    assert names(observer.look(())) == ([], ["checkpoint-3"], [])
    (folder / "trainer_state.json").write_text('{"global_step": 3}')
    assert names(observer.look(())) == (["checkpoint-3"], [], [])


def test_an_announcement_needs_no_rest_and_is_of_this_save(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "final")
    observer = Observer(tmp_path, settle_s=LONG_S)
    early = Announcement(path=str(folder), global_step=None, epoch=None, announced_at=time.time() - 60)
    write_announcement(tmp_path, early)
    assert names(observer.look(())) == ([], ["final"], []), "announced before these weights were written"
    write_announcement(tmp_path, Announcement(path=str(folder), global_step=None, epoch=None, announced_at=time.time()))
    assert names(observer.look(())) == (["final"], [], [])


def test_an_announcement_may_name_the_checkpoint_through_a_link(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "lustre" / "checkpoint-5")
    (tmp_path / "scratch").symlink_to(folder.parent)
    (folder.parent / "latest").symlink_to(folder)
    observer = Observer(folder.parent, settle_s=LONG_S)
    for named in ("bad\0name", str(tmp_path / "scratch" / "checkpoint-5")):
        assert names(observer.look(())) == ([], ["checkpoint-5"], [])
        write_announcement(folder.parent, Announcement(path=named, global_step=5, epoch=None, announced_at=time.time()))
    assert names(observer.look(())) == (["checkpoint-5"], [], [])


def test_the_trainers_state_tells_what_the_name_does_not(tmp_path: Path) -> None:
    for folder, step, epoch in ((tmp_path, 30, 3.0), (tmp_path / "checkpoint-10", 10, 1.0)):
        make_checkpoint(folder)
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": epoch}))
    seen = Observer(tmp_path, settle_s=0).look(())
    positions = [(one.found.position.global_step, one.found.position.epoch) for one in seen.whole]
    assert positions == [(10, 1), (30, 3)]


def test_a_slow_writer_is_waited_for_whatever_it_writes_last(tmp_path: Path) -> None:
    whole = make_checkpoint(tmp_path / "whole" / "checkpoint-8", num_shards=3)
    root = tmp_path / "root"
    folder = root / "checkpoint-8"
    folder.mkdir(parents=True)
    observer = Observer(root, settle_s=0.0)
    for path in sorted(whole.iterdir(), reverse=True):
        content = path.read_bytes()
        for part in (content[: len(content) // 2], content):
            assert observer.look(()).whole == ()
            (folder / path.name).write_bytes(part)
    assert names(observer.look(())) == (["checkpoint-8"], [], [])


def test_a_checkpoint_that_was_removed_half_written_is_told_once(tmp_path: Path) -> None:
    observer = Observer(tmp_path, settle_s=LONG_S)
    folder = make_checkpoint(tmp_path / "checkpoint-2")
    (folder / "config.json").unlink()
    observer.look(())
    shutil.rmtree(folder)
    assert names(observer.look(())) == ([], [], ["checkpoint-2"])
    assert names(observer.look(())) == ([], [], [])


def test_one_that_was_whole_and_is_gone_before_it_landed_is_told(tmp_path: Path) -> None:
    observer = Observer(tmp_path, settle_s=0.0)
    landed, other = make_checkpoint(tmp_path / "checkpoint-2"), make_checkpoint(tmp_path / "checkpoint-3")
    seen = observer.look(())
    shutil.rmtree(landed)
    shutil.rmtree(other)
    marks = {one.state.mark for one in seen.whole if one.found.folder == landed}
    assert names(observer.look(marks)) == ([], [], ["checkpoint-3"])


def test_a_folder_saved_again_is_another_content(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint-2")
    observer = Observer(tmp_path, settle_s=0.0)
    first = observer.look(())
    time.sleep(0.02)
    (folder / "model.safetensors").write_bytes(safetensors({"a": (3, 4)}, fill=7))
    second = observer.look(known(first))
    assert names(second) == (["checkpoint-2"], [], [])
    assert known(first).isdisjoint(known(second))


@pytest.mark.parametrize(
    "name",
    ["config.json", "hf_quant_config.json", "modeling_own.py", "chat_template.jinja", "chat_templates/default.jinja"],
)
def test_a_file_that_decides_the_model_makes_another_content(tmp_path: Path, name: str) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint-2")
    (folder / "chat_templates").mkdir()
    before = read_state(folder, folder)
    (folder / name).write_text("{ }")
    after = read_state(folder, folder)
    assert before is not None
    assert after is not None
    assert after.mark != before.mark
    assert after.weights_mark == before.weights_mark


def test_small_files_and_links_do_not_make_another_content(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint-2")
    before = read_state(folder, folder)
    assert before is not None
    (folder / "README.md").write_text("x")
    os.link(folder / "model.safetensors", tmp_path / "held")
    after = read_state(folder, folder)
    assert after is not None
    assert (after.mark, after.saved_at) == (before.mark, before.saved_at)
    assert after.signature != before.signature


def test_what_cannot_be_used_is_told_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "global_step_4" / "actor").mkdir(parents=True)
    (tmp_path / "global_step_4" / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"x")
    pickled = make_checkpoint(tmp_path / "checkpoint-1")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    pending = Observer(tmp_path, settle_s=0.0).look(()).pending
    assert [(one.state, one.has_rested) for one in pending] == [("unusable", True), ("unusable", True)]
    assert "pickle weights only" in pending[0].detail
    assert "verl.model_merger merge" in pending[1].detail
    allowed = Observer(tmp_path, settle_s=0.0, allow_pickle_weights=True).look(())
    assert names(allowed)[0] == ["checkpoint-1"]


def test_a_dump_has_rested_once_no_file_in_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    actor = tmp_path / "global_step_4" / "actor"
    actor.mkdir(parents=True)
    shard = actor / "model_world_size_1_rank_0.pt"
    shard.write_bytes(b"x")
    observer = Observer(tmp_path, settle_s=30.0)
    for later_s, has_rested in ((29, False), (29, False), (31, True)):
        if not has_rested:
            with shard.open("ab") as file:
                file.write(b"x")
        now_s = shard.stat().st_ctime + later_s
        monkeypatch.setattr("tasks.watching.observation.time", SimpleNamespace(time=lambda now_s=now_s: now_s))
        (pending,) = observer.look(()).pending
        assert pending.has_rested is has_rested
    assert pending.state == "unusable"
