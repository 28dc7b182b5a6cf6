"""A pin keeps the weights under the trainer's rotation, finds what it cannot keep, and is not left behind."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.pins import (
    LEFTOVER_LIFE_S,
    Pin,
    adopt_leftover_pin,
    adopted_pin,
    pin_checkpoint,
    release_leftover_pins,
    release_pin,
    verify_pin,
)
from schemas.errors import CheckpointError, StoreError
from tests.support.checkpoint_folders import make_checkpoint

ROOT = Path(__file__).parents[4]
PIN_AND_DIE = (
    "import os, sys; from pathlib import Path\n"
    "from infra.checkpoints import inspect_checkpoint; from infra.checkpoints.pins import pin_checkpoint\n"
    "pin = pin_checkpoint(inspect_checkpoint(sys.argv[1]), Path(sys.argv[2])); print(pin.folder, flush=True)\n"
    "sys.stdin.read() if sys.argv[3] == 'live' else os._exit(9)\n"
)


def _pin(folder: Path, root: Path) -> Pin:
    return pin_checkpoint(inspect_checkpoint(folder), root)


def _killed_pin(folder: Path, root: Path) -> Path:
    argv = [sys.executable, "-c", PIN_AND_DIE, str(folder), str(root), "die"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    return Path(done.stdout.strip())


def test_a_pin_outlives_the_removal_of_the_checkpoint(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint-5", num_shards=3)
    (folder / "optimizer.pt").write_bytes(b"large")
    (folder / "chat_templates").mkdir()
    (folder / "chat_templates" / "default.jinja").write_text("x")
    pin = _pin(folder, tmp_path / "pins")
    assert (pin.pinned, pin.reason, pin.folder.name) == (True, None, "checkpoint-5")
    shard = "model-00001-of-00003.safetensors"
    assert (pin.folder / shard).samefile(folder / shard), "a link, not a copy"
    assert not (pin.folder / "optimizer.pt").exists(), "the optimizer's state is not held"
    assert (pin.folder / "chat_templates" / "default.jinja").is_file()
    shutil.rmtree(folder)
    assert inspect_checkpoint(pin.folder).status == "complete"
    verify_pin(pin)
    release_pin(pin)
    release_pin(pin)
    assert list((tmp_path / "pins").iterdir()) == []


def test_releasing_leaves_the_checkpoint_alone(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c", num_shards=2)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    release_pin(_pin(folder, tmp_path / "pins"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_small_files_rewritten_in_place_do_not_reach_the_pin(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    pin = _pin(folder, tmp_path / "pins")
    (folder / "config.json").write_text("{")
    assert inspect_checkpoint(pin.folder).status == "complete"
    release_pin(pin)


def test_replacing_a_shard_by_rename_keeps_the_pin_whole(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    pin = _pin(folder, tmp_path / "pins")
    (folder / "new").write_bytes(b"other")
    (folder / "new").rename(folder / "model.safetensors")
    verify_pin(pin)
    release_pin(pin)


@pytest.mark.parametrize("truncate", [True, False])
def test_rewriting_a_shard_in_place_is_found(tmp_path: Path, truncate: bool) -> None:
    folder = make_checkpoint(tmp_path / "c")
    pin = _pin(folder, tmp_path / "pins")
    time.sleep(0.02)
    with (folder / "model.safetensors").open("r+b") as file:
        if truncate:
            file.truncate(10)
        else:
            file.seek(-1, 2)
            file.write(b"y")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: was rewritten during the evaluation"):
        verify_pin(pin)
    release_pin(pin)


def test_links_of_the_hubs_cache_are_followed_to_the_file(tmp_path: Path) -> None:
    blobs = make_checkpoint(tmp_path / "blobs")
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(path)
    pin = _pin(snapshot, tmp_path / "pins")
    shutil.rmtree(blobs)
    assert not any(path.is_symlink() for path in pin.folder.iterdir())
    assert inspect_checkpoint(pin.folder).status == "complete"
    release_pin(pin)


@pytest.mark.skipif(
    not Path("/dev/shm").is_dir() or Path("/dev/shm").stat().st_dev == Path("/tmp").stat().st_dev,
    reason="needs a second file system at /dev/shm",
)
def test_another_file_system_is_said_and_removal_is_found(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    other = Path("/dev/shm") / f"milepost-{tmp_path.name}-{time.time_ns()}"
    try:
        pin = _pin(folder, other)
        assert not pin.pinned
        assert inspect_checkpoint(pin.folder).status == "complete"
        assert pin.reason is not None
        assert "another file system" in pin.reason
        verify_pin(pin)
        (folder / "model.safetensors").rename(folder / "gone")
        with pytest.raises(CheckpointError, match="not there any more"):
            verify_pin(pin)
        release_pin(pin)
        assert list(other.iterdir()) == []
        assert (folder / "gone").is_file(), "the checkpoint itself is not ours to remove"
    finally:
        shutil.rmtree(other, ignore_errors=True)


def test_a_pin_root_that_cannot_be_is_a_store_error(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cluster\.fileroot"):
        _pin(folder, tmp_path / "file" / "pins")


def test_a_shard_that_vanishes_is_a_checkpoint_error_and_leaves_no_pin(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "c")
    report = inspect_checkpoint(folder)
    shutil.rmtree(folder)
    with pytest.raises(CheckpointError, match="vanished while it was being pinned"):
        pin_checkpoint(report, tmp_path / "pins")
    assert list((tmp_path / "pins").iterdir()) == []


def test_the_pin_of_a_killed_run_is_released_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    folder, root = make_checkpoint(tmp_path / "c"), tmp_path / "pins"
    argv = [sys.executable, "-c", PIN_AND_DIE, str(folder), str(root), "live"]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living:
        assert living.stdout is not None
        alive = Path(living.stdout.readline().strip())
        own = _pin(folder, root)
        dead = _killed_pin(folder, root)
        assert release_leftover_pins(root, folder) == 1
        assert (alive.is_dir(), own.folder.is_dir(), dead.is_dir()) == (True, True, False)
        assert release_leftover_pins(root, folder) == 0
        release_pin(own)
        living.kill()
    assert release_leftover_pins(root, folder) == 1


def test_pins_of_other_checkpoints_stay_for_a_week(tmp_path: Path) -> None:
    root = tmp_path / "pins"
    dead = _killed_pin(make_checkpoint(tmp_path / "c"), root)
    other = tmp_path / "other"
    assert release_leftover_pins(root, other) == 0
    assert dead.is_dir()
    assert release_leftover_pins(root, other, now_s=time.time() + LEFTOVER_LIFE_S + 60) == 1
    assert release_leftover_pins(tmp_path / "absent", other) == 0


def test_a_leftover_is_adopted_once_and_only_when_whole(tmp_path: Path) -> None:
    folder, root = make_checkpoint(tmp_path / "c"), tmp_path / "pins"
    half = _killed_pin(folder, root)
    (half.parent / "pin.json").unlink()
    assert adopt_leftover_pin(root, folder) is None
    assert release_leftover_pins(root, folder) == 1
    whole = _killed_pin(folder, root)
    adopted = adopt_leftover_pin(root, folder)
    assert adopted is not None
    assert adopted.folder == whole
    assert adopt_leftover_pin(root, folder) is None
    assert release_leftover_pins(root, folder) == 0
    release_pin(adopted_pin(inspect_checkpoint(adopted.folder), folder, adopted.ownership))
    assert list(root.iterdir()) == []
