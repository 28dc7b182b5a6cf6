"""Configuration files for tests."""

from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path):
    def write_config(text: str) -> Path:
        path = tmp_path / "eval.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_config
