"""`milepost status` for people: the grid in short words, and below it each reason to its end."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.commands.watching import exit_code_of, print_outcome
from tests.support.checkpoint_folders import make_adapter, make_base, make_checkpoint
from tests.support.instant_evaluations import InstantLauncher, make_config
from tests.support.reconciling import reconcile


def shown_status(folder: Path, *arguments: str) -> list[str]:
    config = str(folder / "config.yaml")
    words = ["status", config, str(folder / "ck"), f"cluster.fileroot={folder / 'out'}", "watch.settle_s=0", *arguments]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_a_reason_is_shown_to_its_end_on_one_line(tmp_path: Path) -> None:
    root = tmp_path / "ck"
    make_checkpoint(root / "checkpoint-1")
    reason = f"the log ends here:\n    {'x' * 200} and no further"
    failing = InstantLauncher(fails=lambda _order: True, error=reason)
    reconcile(root, make_config(tmp_path, "watch.max_attempts=1"), failing)
    dump = root / "it's one" / "global_step_4"
    (dump / "actor").mkdir(parents=True)
    (dump / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"x")
    make_adapter(root / "checkpoint-5", make_base(tmp_path / "base"), use_dora=True)
    shown = shown_status(tmp_path)
    assert [line.split() for line in shown[1:4]] == [
        ["1", "checkpoint-1", "failed"],
        ["4", "it's", "one/global_step_4", "unusable"],
        ["5", "checkpoint-5", "unusable"],
    ]
    assert shown[4] == "1 failed, 2 unusable"
    failed, to_convert, to_merge = shown[5:]
    assert failed == f"checkpoint-1: failed: the log ends here: {'x' * 200} and no further"
    assert to_convert.startswith(
        "it's one/global_step_4: unusable: needs conversion: python -m verl.model_merger merge"
    )
    assert to_convert.endswith("/it'\"'\"'s one/global_step_4-merged'")
    assert to_merge.startswith("checkpoint-5: unusable: adapter_config.json: use_dora is True")
    assert to_merge.endswith(f"{root}/checkpoint-5 {root}/checkpoint-5-merged")


def test_of_several_evaluations_a_reason_names_its_own(tmp_path: Path) -> None:
    pickled = make_checkpoint(tmp_path / "ck" / "checkpoint-6")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    make_config(tmp_path)
    (tmp_path / "other.yaml").write_text(
        (tmp_path / "config.yaml")
        .read_text()
        .replace("watched", "trusting")
        .replace("{stand_in: {}}", "{stand_in: {}, allow_pickle_weights: true}")
    )
    *_, of_first, of_other = shown_status(tmp_path, "--also", str(tmp_path / "other.yaml"))
    assert of_first.startswith("checkpoint-6, watched/")
    assert ": unusable: pytorch_model.bin: pickle weights only" in of_first
    assert of_other.startswith("checkpoint-6, trusting/")
    assert of_other.endswith(": waiting: no watcher has seen it yet")


def test_once_names_what_is_given_up_and_fails_as_long_as_it_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, config = tmp_path / "ck", make_config(tmp_path, "watch.max_attempts=1")
    for step in (1, 2):
        make_checkpoint(root / f"checkpoint-{step}", fill=step)
    failing = InstantLauncher(
        fails=lambda order: "checkpoint-1" in order.config.actor.path, error="no template\n  \x1b[31mred"
    )
    reconcile(root, config, failing)
    later = reconcile(root, config, InstantLauncher())  # it makes no attempt of its own
    assert (later.num_failed, later.num_open, exit_code_of(later)) == (0, 0, 1)
    print_outcome(later)
    first, line = capsys.readouterr().out.splitlines()
    assert first == "0 evaluated, 0 attempts failed, 0 still to do, 0 unusable, 1 given up"
    named = f"given up: {root}/checkpoint-1, watched/trial0 on reasoning_gym:chain_sum?size=5&seed=1: no template "
    assert line.startswith(named)
    assert "\x1b" not in line
    folder = failing.orders[-1].folder
    assert line.endswith(f"; to have it tried anew, remove {folder}")
    assert folder == later.given_up[0].folder
    (root / "checkpoint-1").rename(tmp_path / "rotated")
    gone = reconcile(root, config, InstantLauncher())
    assert (gone.given_up, exit_code_of(gone)) == ((), 0)
    (tmp_path / "rotated").rename(root / "checkpoint-1")
    shutil.rmtree(folder)
    mended = reconcile(root, config, InstantLauncher())
    assert (mended.num_done, exit_code_of(mended)) == (1, 0)
    print_outcome(mended)
    assert capsys.readouterr().out == "1 evaluated, 0 attempts failed, 0 still to do, 0 unusable\n"
