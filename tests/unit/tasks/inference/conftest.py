"""What tests of one replica share."""

from pathlib import Path

import pytest

from tests.support.replica_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A folder for one worker whose program a test writes."""
    return Bench(tmp_path)
