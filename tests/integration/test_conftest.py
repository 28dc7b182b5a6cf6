"""A skip for want of a required service fails the run; any other skip stays a skip."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest

@pytest.mark.needs_engine
def test_in_the_body():
    pytest.skip("no engine here")

@pytest.mark.needs_engine
@pytest.mark.skipif(True, reason="no engine either")
def test_by_condition():
    pass

@pytest.mark.needs_data
def test_of_data(data_dir):
    pass

@pytest.mark.needs_engine
@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    raise ValueError

def test_of_no_service():
    pytest.skip("another reason")
"""
MODULE_THAT_SKIPS_ITSELF = "import pytest\npytest.skip('nothing to run', allow_module_level=True)\n"

NOTE = """
import os, pytest, time

def note(file):
    time.sleep(0.3)  # the other process takes its part meanwhile
    with open(file, "a") as record:
        record.write(os.environ["PYTEST_XDIST_WORKER"])

"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    integration = tmp_path / "tests" / "integration"
    integration.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    support = Path("tests", "support")
    (tmp_path / support).mkdir()
    shutil.copy(ROOT / support / "command_server.py", tmp_path / support)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (integration / "test_services.py").write_text(TESTS)
    return tmp_path


def outcomes(project: Path, *options: str, **variables: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(project), **variables}
    result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    closing_line = (result.stdout.splitlines() or [""])[-1]
    return closing_line.split(" in ")[0] + result.stderr


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "4 skipped, 1 xfailed"),
        ({"CI": "true"}, "1 failed, 2 skipped, 1 xfailed, 1 error"),
        ({"MILEPOST_REQUIRE_SERVICES": "data"}, "3 skipped, 1 xfailed, 1 error"),
        ({"MILEPOST_REQUIRE_SERVICES": "1"}, "1 failed, 1 skipped, 1 xfailed, 2 errors"),
        ({"MILEPOST_REQUIRE_SERVICES": "prefect"}, "4 skipped, 1 xfailed"),
    ],
)
def test_a_required_service_may_not_be_skipped(project: Path, variables: dict[str, str], expected: str) -> None:
    assert outcomes(project, **variables) == expected


def test_nor_where_processes_share_the_tests(project: Path) -> None:
    (project / "tests" / "integration" / "test_skipping_itself.py").write_text(MODULE_THAT_SKIPS_ITSELF)
    found = outcomes(project, "--numprocesses", "1", "--dist", "loadfile", CI="true")
    assert found == "1 failed, 2 skipped, 1 xfailed, 2 errors"


def test_a_module_that_skips_itself_fails_where_services_are_required(project: Path) -> None:
    (project / "tests" / "integration" / "test_services.py").write_text(MODULE_THAT_SKIPS_ITSELF)
    assert outcomes(project) == "1 skipped"
    assert outcomes(project, CI="true") == "1 error"


def test_an_unknown_service_is_refused(project: Path) -> None:
    assert "allowed: 1, or some of" in outcomes(project, MILEPOST_REQUIRE_SERVICES="gpu")


def test_what_needs_slurm_runs_in_one_process(project: Path) -> None:
    shutil.rmtree(project / "tests" / "integration")
    on_slurm, by_file = (project / "tests" / name for name in ("on_slurm", "by_file"))
    marked = f"{NOTE}@pytest.mark.needs_slurm\ndef test_marked():\n    note({str(on_slurm)!r})\n"
    for number in range(4):
        (project / "tests" / f"test_{number}.py").write_text(
            f"{marked}def test_plain():\n    note({str(by_file)!r})\n", "utf-8"
        )
    assert outcomes(project, "--numprocesses", "2", "--dist", "loadgroup") == "8 passed"
    (process,) = set(re.findall("gw[01]", on_slurm.read_text("utf-8")))
    assert {"gw0", "gw1"} - {process} <= set(re.findall("gw[01]", by_file.read_text("utf-8")))
