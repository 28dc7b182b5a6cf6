"""Each trainer's folders are recognised, and whether it has finished a save is told as it tells it."""

import os
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.discovery import FoundCheckpoint, find_checkpoints
from tests.support.checkpoint_folders import make_checkpoint

Make = Callable[[Path], object]


def _age(path: Path, age_s: float) -> None:
    for file in [path, *path.rglob("*")]:
        os.utime(file, (time.time() - age_s,) * 2)


def _write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _only(root: Path) -> FoundCheckpoint:
    (found,) = find_checkpoints(root)
    return found


def _finished_trainer(root: Path) -> None:
    _write(make_checkpoint(root / "checkpoint-120") / "trainer_state.json", '{"global_step": 120}')


def _finished_verl(root: Path) -> None:
    make_checkpoint(root / "global_step_40" / "actor" / "huggingface")
    make_checkpoint(root / "global_step_40" / "critic" / "huggingface", fill=9)
    _write(root / "latest_checkpointed_iteration.txt", "40")


def _finished_nemo(root: Path) -> None:
    _write(root / "step_7" / "training_info.json", "{}")
    make_checkpoint(root / "step_7" / "policy" / "weights" / "model" / "consolidated")


def _slime_hf(root: Path) -> None:
    folder = make_checkpoint(root / "100", num_shards=2)
    _age(folder, 10)
    os.utime(folder / "model.safetensors.index.json")


AREAL = "user/gsm8k-grpo/trial0/default/epoch1epochstep3globalstep13"


@pytest.mark.parametrize(
    ("make", "layout", "step", "epoch", "marked"),
    [
        (lambda root: make_checkpoint(root / AREAL), "areal", 13, 1, False),
        (_finished_trainer, "huggingface", 120, None, True),
        (lambda root: make_checkpoint(root / "checkpoint-5"), "huggingface", 5, None, False),
        (_finished_verl, "verl", 40, None, True),
        (lambda root: make_checkpoint(root / "global_step_9/actor/model/huggingface"), "verl", 9, None, False),
        (lambda root: make_checkpoint(root / "global_step50_hf"), "openrlhf", 50, None, False),
        (lambda root: make_checkpoint(root / "best_global_step20_hf"), "openrlhf", 20, None, False),
        (_finished_nemo, "nemo_rl", 7, None, True),
        (lambda root: make_checkpoint(root / "outputs/checkpoint/step-1000"), "torchtitan", 1000, None, False),
        (_slime_hf, "slime", 100, None, True),
        (lambda root: make_checkpoint(root / "final"), "huggingface", None, None, False),
        (lambda root: make_checkpoint(root / "step_3"), "huggingface", 3, None, False),
        (lambda root: make_checkpoint(root / "it's $(rm -rf x)\n\"q\""), "huggingface", None, None, False),
    ],
)  # fmt: skip
def test_a_whole_save_is_recognised(
    tmp_path: Path, make: Make, layout: str, step: int | None, epoch: int | None, marked: bool
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    make(root)
    found = _only(root)
    assert (found.layout.name, found.position.global_step, found.position.epoch) == (layout, step, epoch)
    assert (found.is_marked, found.conversion) == (marked, None)
    report = inspect_checkpoint(found.folder)
    assert (report.status, report.layout, report.global_step, report.path) == ("complete", layout, step, found.model)


def _verl_dump(shard: str) -> Make:
    return lambda root: (
        _write(root / "global_step_8" / "actor" / shard),
        _write(root / "global_step_8" / "actor" / "huggingface" / "config.json", "{}"),
    )


def _nemo_dump(file: str) -> Make:
    return lambda root: (_write(root / "step_8/training_info.json", "{}"), _write(root / "step_8" / file))


@pytest.mark.parametrize(
    ("make", "layout", "command"),
    [
        (_verl_dump("model_world_size_2_rank_0.pt"), "verl", "verl.model_merger merge --backend fsdp --local_dir"),
        (_verl_dump("dist_ckpt/__0_0.distcp"), "verl", "verl.model_merger merge --backend megatron"),
        (_nemo_dump("policy/weights/__0_0.distcp"), "nemo_rl", "convert_dcp_to_hf.py --config"),
        (_nemo_dump("policy/weights/iter_0000000/common.pt"), "nemo_rl", "convert_megatron_to_hf.py --config"),
        (
            lambda root: (_write(root / "step-8" / "__0_0.distcp"), _write(root / "step-8" / ".metadata")),
            "torchtitan",
            "scripts/checkpoint_conversion/convert_to_hf.py",
        ),
        (lambda root: _write(root / "iter_0000008" / "_0_0.distcp"), "slime", "convert_torch_dist_to_hf.py"),
        (
            lambda root: _write(root / "_actor" / "global_step8" / "mp_rank_00_model_states.pt"),
            "openrlhf",
            "zero_to_fp32.py",
        ),
        (
            lambda root: (
                _write(root / "checkpoint-8" / "trainer_state.json", "{}"),
                _write(root / "checkpoint-8" / "pytorch_model_fsdp_0" / ".metadata"),
            ),
            "huggingface",
            "accelerate merge-weights",
        ),
        (
            lambda root: (
                _write(root / "checkpoint-8" / "zero_to_fp32.py"),
                _write(root / "checkpoint-8" / "global_step8" / "zero_pp_rank_0_mp_rank_00_model_states.pt"),
            ),
            "huggingface",
            "--safe_serialization",
        ),
    ],
)
def test_a_sharded_dump_needs_the_trainers_own_conversion(
    tmp_path: Path, make: Make, layout: str, command: str
) -> None:
    root = tmp_path / "a folder; with 'quotes'"
    root.mkdir()
    make(root)
    found = _only(root)
    assert (found.model, found.layout.name, found.position.global_step) == (None, layout, 8)
    assert found.conversion is not None
    words = shlex.split(found.conversion)
    assert any(word.startswith(str(root)) for word in words), "the path is one word for a shell"
    report = inspect_checkpoint(found.folder)
    assert (report.status, report.layout, report.global_step) == ("needs_conversion", layout, 8)
    assert command in found.conversion
    assert found.conversion in report.problems[0]


@pytest.mark.parametrize("name", ["epoch0epochstep1globalstep2.tmp", "tmp_step_5", "old_step_5"])
def test_what_a_trainer_will_rename_is_not_found_and_not_complete(tmp_path: Path, name: str) -> None:
    folder = make_checkpoint(tmp_path / name)
    assert find_checkpoints(tmp_path) == []
    report = inspect_checkpoint(folder)
    assert report.status == "incomplete"
    assert "has not finished it" in report.problems[0]


def test_the_trainers_mark_counts_only_for_the_save_it_was_made_for(tmp_path: Path) -> None:
    _finished_trainer(tmp_path)
    (tmp_path / "checkpoint-120" / "trainer_state.json").write_text('{"global_step": 12')
    assert not _only(tmp_path).is_marked, "half written"
    (tmp_path / "checkpoint-120" / "trainer_state.json").write_text('{"global_step": 120}')
    assert _only(tmp_path).is_marked
    _age(tmp_path / "checkpoint-120", 60)
    (tmp_path / "checkpoint-120" / "model.safetensors").touch()
    assert not _only(tmp_path).is_marked, "being saved again over an older save"


def test_verls_tracker_is_of_this_save_or_a_later_one(tmp_path: Path) -> None:
    _finished_verl(tmp_path)
    for recorded, marked in (("39", False), ("41", True), ("", False), ("many", False)):
        (tmp_path / "latest_checkpointed_iteration.txt").write_text(recorded)
        assert _only(tmp_path).is_marked is marked, recorded


@pytest.mark.parametrize("part", ["actor", "actor/huggingface"])
def test_a_part_of_a_dump_has_the_command_of_the_whole(tmp_path: Path, part: str) -> None:
    save = tmp_path / "global_step_80"
    _write(save / "actor" / "model_world_size_2_rank_0.pt")
    make_checkpoint(save / "actor" / "huggingface")
    (save / "actor" / "huggingface" / "model.safetensors").unlink()
    whole, own = inspect_checkpoint(save), inspect_checkpoint(save / part)
    assert (own.status, own.layout, own.global_step) == ("needs_conversion", "verl", 80)
    assert own.problems[0].split("\n")[1:] == whole.problems[0].split("\n")[1:]


def test_a_model_beside_a_dump_is_one(tmp_path: Path) -> None:
    _write(tmp_path / "global_step_80" / "actor" / "model_world_size_2_rank_0.pt")
    model = make_checkpoint(tmp_path / "global_step_80" / "merged")
    assert inspect_checkpoint(model).status == "complete"


def test_half_a_dump_is_incomplete(tmp_path: Path) -> None:
    _write(tmp_path / "step-8" / "__0_0.distcp")
    assert inspect_checkpoint(tmp_path / "step-8").status == "incomplete"


def test_a_final_model_above_its_checkpoints_is_one_more(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    for step in (100, 20, 3):
        make_checkpoint(tmp_path / f"checkpoint-{step}")
    found = find_checkpoints(tmp_path)
    assert [one.folder for one in found] == [tmp_path, *(tmp_path / f"checkpoint-{step}" for step in (3, 20, 100))]


def test_a_save_named_as_root_is_one_checkpoint(tmp_path: Path) -> None:
    _finished_verl(tmp_path)
    assert _only(tmp_path / "global_step_40").model == tmp_path / "global_step_40" / "actor" / "huggingface"


def test_links_are_taken_once_and_loops_end(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make_checkpoint(root / "checkpoint-9")
    outside = make_checkpoint(tmp_path / "elsewhere" / "checkpoint-4")
    (root / "latest").symlink_to("checkpoint-9")
    (root / "a-link").symlink_to("checkpoint-9")
    (root / "loop").symlink_to(root)
    (root / "self").symlink_to("self")
    (root / "broken").symlink_to("nowhere")
    (root / "old").symlink_to(outside)
    assert [one.folder.name for one in find_checkpoints(root)] == ["old", "checkpoint-9"]
    assert find_checkpoints(root)[0].layout.name == "huggingface"


def test_what_is_no_checkpoint_is_passed_over(tmp_path: Path) -> None:
    _write(tmp_path / "events" / "log.txt")
    _write(tmp_path / "note.txt")
    make_checkpoint(tmp_path / ".cache" / "checkpoint-1")
    make_checkpoint(tmp_path / "recover_checkpoint")
    make_checkpoint(tmp_path / "out" / "pins" / "checkpoint-2")
    (tmp_path / "checkpoint-3").mkdir()
    assert [one.folder.name for one in find_checkpoints(tmp_path)] == ["checkpoint-2"]
    assert find_checkpoints(tmp_path, skipped=[tmp_path / "out" / "pins"]) == []


def test_folders_that_come_and_go_are_no_error(tmp_path: Path) -> None:
    for step in range(30):
        make_checkpoint(tmp_path / f"checkpoint-{step}")
    pid = os.fork()
    if pid == 0:
        for step in range(30):
            shutil.rmtree(tmp_path / f"checkpoint-{step}", ignore_errors=True)
        os._exit(0)
    counts = [len(find_checkpoints(tmp_path))]
    while counts[-1]:
        counts.append(len(find_checkpoints(tmp_path)))
    os.waitpid(pid, 0)
    assert counts == sorted(counts, reverse=True)


def test_a_root_that_is_not_there_is_the_callers_to_tell(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        find_checkpoints(tmp_path / "absent")
    with pytest.raises(NotADirectoryError):
        find_checkpoints(_write(tmp_path / "file"))
