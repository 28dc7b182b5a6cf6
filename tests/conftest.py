"""Fixtures for what real services need, and the rule that continuous integration may not skip them.

MILEPOST_TEST_DATA          folder of the public evaluation data; unset, the tests that need it skip
MILEPOST_REQUIRE_SERVICES   `1` or a list such as `engine,prefect,slurm,browser,data`: a skip for want of one fails
CI                          `true` requires all services, and the data where MILEPOST_TEST_DATA is set
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parent.parent
SERVICES = frozenset({"engine", "prefect", "slurm", "browser", "data"})


def required_services() -> frozenset[str]:
    """The services whose tests may not be skipped in this run."""
    setting = os.environ.get("MILEPOST_REQUIRE_SERVICES", "")
    if setting in ("1", "true"):
        return SERVICES
    if setting:
        named = frozenset(setting.split(","))
        if named - SERVICES:
            raise pytest.UsageError(f"MILEPOST_REQUIRE_SERVICES={setting!r}; allowed: 1, or some of {sorted(SERVICES)}")
        return named
    if os.environ.get("CI") == "true":
        return SERVICES if os.environ.get("MILEPOST_TEST_DATA") else SERVICES - {"data"}
    return frozenset()


def pytest_configure() -> None:
    """Refuses a misspelt service before any test runs; properties have no deadlines, and in CI no new examples."""
    required_services()
    # A deadline measures how busy the machine is; an example found in CI must be found again by whoever looks.
    settings.register_profile("milepost", deadline=None, derandomize=os.environ.get("CI") == "true")
    settings.load_profile("milepost")


class FileScheduling(LoadScopeScheduling):
    """Tests of one file stay in one process and in order, and so does all that needs the one Slurm of this machine."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "slurm" if "needs_slurm" in (ROOT / path).read_text("utf-8") else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    """Share the tests out as above, where `--dist loadgroup` asks for groups."""
    return FileScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


def _refuse(report: pytest.TestReport | pytest.CollectReport, services: str) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"skipped although this run requires {services}: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A skipped test of a required service is a failure: nothing passes by not running."""
    report = yield
    missing = sorted(name for name in required_services() if item.get_closest_marker(f"needs_{name}"))
    if report.skipped and missing and not hasattr(report, "wasxfail"):
        _refuse(report, ", ".join(missing))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """A module that skips itself while it is imported shows no markers: in integration that is a failure too."""
    report = yield
    if report.skipped and required_services() and ROOT / "tests" / "integration" in collector.path.parents:
        _refuse(report, ", ".join(sorted(required_services())))
    return report


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """The interpreter of the engine environment."""
    python = ROOT / ".venv-engine" / "bin" / "python"
    if not python.exists():
        pytest.skip("no engine environment: run `make setup`")
    return python


@pytest.fixture(scope="session")
def demo_checkpoint() -> Path:
    """The folder of SmolLM2-135M-Instruct in bfloat16."""
    folder = ROOT / ".demo" / "smollm2-135m-instruct"
    if not folder.is_dir():
        pytest.skip("no demo checkpoint: run `make setup`")
    return folder


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the public evaluation data."""
    setting = os.environ.get("MILEPOST_TEST_DATA", "")
    if not setting:
        pytest.skip("MILEPOST_TEST_DATA names no folder of evaluation data")
    folder = Path(setting).resolve()
    if not folder.is_dir():
        pytest.fail(f"MILEPOST_TEST_DATA={setting!r} is no folder")
    return folder
