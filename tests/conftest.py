"""Fixtures for what real services need, and the rule that continuous integration may not skip them.

MILEPOST_TEST_DATA          folder of the public evaluation data; unset, the tests that need it skip
MILEPOST_REQUIRE_SERVICES   `1` or a list such as `engine,prefect,slurm,browser,data`: a skip for want of one fails
CI                          `true` requires all services, and the data where MILEPOST_TEST_DATA is set
"""

import ast
import os
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.command_server import cpu_s_of_ended_commands

ROOT = Path(__file__).resolve().parent.parent
UNIT_TESTS = ROOT / "tests" / "unit"
SLURM = "needs_slurm"
SERVICES = frozenset({"engine", "prefect", "slurm", "browser", "data"})

BEGAN = pytest.StashKey[tuple[float, float]]()


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need Slurm run first, as they take longest in one process; unit tests fill the end."""
    items.sort(key=lambda item: (not item.get_closest_marker("needs_slurm"), UNIT_TESTS in item.path.parents))


@cache
def tests_on_slurm(path: str) -> frozenset[str] | None:
    """Return the names of a file's tests that are marked `needs_slurm`; None: the mark is the whole file's.

    Read from the file: only the processes that run tests see marks, and xdist has no other way to hand groups over with
    this pytest (its suffix `@group` of a test's name is gone).
    """
    names: set[str] = set()
    for statement in ast.parse((ROOT / path).read_text("utf-8")).body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if SLURM in ast.unparse(statement):
                return None
        elif any(SLURM in ast.unparse(decorator) for decorator in statement.decorator_list):
            if not statement.name.startswith("test_"):
                return None  # a fixture with marked parameters
            names.add(statement.name)
    return frozenset(names)


class FileScheduling(LoadScopeScheduling):
    """Tests of one file stay in one process and in order; those that need the one Slurm of this machine are a group."""

    def _split_scope(self, nodeid: str) -> str:
        path, _, test = nodeid.partition("::")
        on_slurm = tests_on_slurm(path)
        return "slurm" if on_slurm is None or test.partition("[")[0] in on_slurm else path


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


def _cpu_s() -> float:
    """Processor time of this process, and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + cpu_s_of_ended_commands()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure what a test takes, its fixtures with it."""
    item.stash[BEGAN] = (time.monotonic(), _cpu_s())
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Hand wall and processor time to the process that prints them."""
    result = yield
    wall_s, cpu_s = (now - then for now, then in zip((time.monotonic(), _cpu_s()), item.stash[BEGAN], strict=True))
    item.user_properties.append(("times", (wall_s, cpu_s)))
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Where `--durations=N` is asked for, the N files that take longest too, processor time apart."""
    reports = [report for group in terminalreporter.stats.values() for report in group if hasattr(report, "when")]
    taken: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for report in reports:
        if report.when == "teardown":
            taken[report.nodeid.partition("::")[0]] += [
                times for name, times in report.user_properties if name == "times"
            ]
    rows = [
        (sum(wall for wall, _ in times), sum(cpu for _, cpu in times), len(times), path)
        for path, times in taken.items()
    ]
    if not rows or not config.getoption("durations"):
        return
    terminalreporter.section("seconds by file: wall, processor, tests")
    for wall_s, cpu_s, num_tests, path in sorted(rows, reverse=True)[: config.getoption("durations")]:
        terminalreporter.write_line(f"{wall_s:7.1f} {cpu_s:7.1f} {num_tests:5d}  {path}")


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
