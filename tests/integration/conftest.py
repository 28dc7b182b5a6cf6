"""Environment of the tests that start real engines."""

import pytest


@pytest.fixture
def engine_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread and no pinning: two engine threads on a loaded machine collapse to a tenth of their speed."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
