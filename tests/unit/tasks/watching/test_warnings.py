"""What cannot be evaluated is said and counted: nothing passes in silence, and nothing is said again and again."""

import shutil
import time
from pathlib import Path

import pytest

from tasks.watching.reconciler import Reconciler
from tasks.watching.settling import make_evaluation
from tests.support.checkpoint_folders import make_adapter, make_base, make_checkpoint
from tests.support.instant_evaluations import InstantLauncher, make_config
from tests.support.reconciling import reconcile, states, wait_until, watching


def make_dump(folder: Path) -> Path:
    """What verl saves with FSDP."""
    (folder / "actor").mkdir(parents=True)
    (folder / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"x")
    return folder


def test_what_has_to_be_converted_is_named_with_the_command_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "ck"
    dump = make_dump(root / "global_step_4")
    make_adapter(root / "checkpoint-5", make_base(tmp_path / "base"), use_dora=True)
    pickled = make_checkpoint(root / "checkpoint-6")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    make_checkpoint(root / "checkpoint-7")
    outcome = reconcile(root, make_config(tmp_path), InstantLauncher())
    assert (outcome.num_done, outcome.num_failed, outcome.num_open, outcome.num_unusable) == (1, 0, 0, 3)
    warned = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    command = f"python -m verl.model_merger merge --backend fsdp --local_dir {dump}/actor --target_dir {dump}-merged"
    assert f"{dump} cannot be evaluated as it is: needs conversion: {command}" in warned
    assert any("checkpoint-5 cannot be evaluated as it is" in said and "merge_and_unload" in said for said in warned)
    assert any("checkpoint-6 cannot be evaluated as it is" in said and "pickle weights only" in said for said in warned)


def test_an_incomplete_save_is_told_once_it_rests_and_counted_until_it_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, config = tmp_path / "ck", make_config(tmp_path, "watch.settle_s=0.5")
    folder = make_checkpoint(root / "checkpoint-1")
    tokenizer = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").unlink()
    outcome = reconcile(root, config, InstantLauncher())
    assert (outcome.num_done, outcome.num_unusable) == (0, 1)
    assert f"{folder} is incomplete and changes no more" in caplog.text
    assert "set tokenizer_path" in caplog.text
    (folder / "tokenizer.json").write_bytes(tokenizer)
    outcome = reconcile(root, config, InstantLauncher())
    assert (outcome.num_done, outcome.num_unusable) == (1, 0)


def test_a_watcher_at_work_says_each_thing_once_for_all_its_evaluations(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "ck"
    configs = [make_config(tmp_path, f"gconfig.temperature={each}") for each in (0.5, 1.0)]
    evaluations = [make_evaluation(config) for config in configs]
    reconciler = Reconciler(root, evaluations, InstantLauncher())
    make_dump(root / "global_step_1")
    with watching(reconciler):
        wait_until(lambda: "global_step_1 cannot be evaluated" in caplog.text)
        make_dump(root / "global_step_2")
        wait_until(lambda: "global_step_2 cannot be evaluated" in caplog.text)
        time.sleep(0.5)
        shutil.rmtree(root / "global_step_1")
        make_checkpoint(root / "checkpoint-3")
        wait_until(lambda: states(root, configs[1]).get("checkpoint-3") == "done")
    assert caplog.text.count("cannot be evaluated as it is") == 2
    assert "has no checkpoint" not in caplog.text
