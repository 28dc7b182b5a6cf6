"""The sample of weights tells two models apart and is the same for two copies of one."""

from pathlib import Path

import numpy as np

from infra.checkpoints.weight_sample import sample_weights


def write(folder: Path, *, seed: int, size: int = 20_000_000) -> Path:
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(np.random.default_rng(seed).bytes(size))
    (folder / "config.json").write_text(f'{{"seed": {seed}}}')
    return folder


def test_copies_are_equal_and_other_weights_are_not(tmp_path: Path) -> None:
    first = sample_weights(write(tmp_path / "first", seed=1))
    assert first == sample_weights(write(tmp_path / "copy", seed=1))
    assert first != sample_weights(write(tmp_path / "other", seed=2))
    assert first != sample_weights(write(tmp_path / "longer", seed=1, size=20_000_001))


def test_a_change_anywhere_in_a_small_file_is_seen(tmp_path: Path) -> None:
    folder = write(tmp_path / "small", seed=3, size=100_000)
    before = sample_weights(folder)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[77_777] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    assert sample_weights(folder) != before


def test_without_weights_there_is_no_sample(tmp_path: Path) -> None:
    assert sample_weights(tmp_path) is None
    assert sample_weights(tmp_path / "absent") is None
