"""A folder that training has saved into."""

from pathlib import Path

import pytest

from tests.support.checkpoint_folders import make_checkpoint


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for step in (10, 20, 30):
        make_checkpoint(tmp_path / "ck" / f"checkpoint-{step}", fill=step)
    return tmp_path / "ck"
