"""Signs of life of an evaluation are those of the owner of its pin; its silence is measured on the looker's clock."""

from pathlib import Path

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.pins import pin_checkpoint, release_pin
from infra.ownership.run_ownership import BEAT_INTERVAL_S
from tasks.watching.pulse import Pulse
from tests.support.checkpoint_folders import make_checkpoint
from tests.support.instant_evaluations import make_config


def test_an_owner_that_beats_is_alive_and_one_that_was_never_there_falls_silent(tmp_path: Path) -> None:
    now = 0.0
    folder = make_checkpoint(tmp_path / "checkpoint-1")
    config = make_config(tmp_path, f"actor.path={folder}")
    pin_root = tmp_path / "out" / "pins"
    pulse = Pulse(config, clock=lambda: now)
    now = 50.0
    assert pulse.silence_s() == 50.0
    other = make_checkpoint(tmp_path / "checkpoint-2")
    elsewhere = pin_checkpoint(inspect_checkpoint(other), pin_root)
    assert pulse.silence_s() == 50.0
    pin = pin_checkpoint(inspect_checkpoint(folder), pin_root)
    assert pulse.silence_s() == 0.0
    now = 80.0
    pin.ownership.release()  # as the kernel would, without a word to the pin's folder
    pulse.silence_s()
    now = 100.0 + BEAT_INTERVAL_S
    assert pulse.silence_s() >= 20.0
    release_pin(elsewhere)
    release_pin(pin)
