"""The package `milepost`: what users import, what it needs, and what the names of other packages do to it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import milepost
from infra.machine.python_code import OWN_PACKAGES, import_object
from milepost.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
RUN_COMMAND = f"import sys; sys.path.append({str(ROOT)!r}); from milepost.__main__ import main; main()"


def run_python(code: str, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *options, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", milepost.__all__)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert getattr(milepost, name).__module__.split(".")[0] in {"flows", "tasks", "infra", "schemas"}


def test_type_checkers_see_the_names_that_are_there() -> None:
    text = Path(milepost.__file__).read_text("utf-8")
    assert [name for name in milepost.__all__ if f"import {name} as {name}" not in text] == []


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AttributeError, match="load_config"):
        _ = milepost.no_such_name


def test_the_hook_of_a_trainer_needs_the_standard_library_alone(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from milepost import Evaluator, EvaluatorConfig, FinetuneSpec, CheckpointAnnouncer"
    )
    done = run_python(code, tmp_path, "-I", "-S")
    assert done.returncode == 0, done.stderr


def test_a_package_of_the_same_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "__init__.py").touch()
    done = run_python(f"import sys; sys.path.append({str(ROOT)!r}); from milepost import load_config", tmp_path)
    assert done.returncode == 1
    assert f"'infra' of this process is {tmp_path / 'infra'}" in done.stderr


def test_the_command_finds_its_own_packages(tmp_path: Path) -> None:
    for name in ("flows", "tasks", "infra", "schemas"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('a package of the user')", "utf-8")
    done = run_python(f"import sys; sys.argv[1:] = ['--version']; {RUN_COMMAND}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_controller_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    done = run_python(RUN_COMMAND, tmp_path, "-S")
    assert done.returncode == 2
    assert "milepost[controller]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_function_in_a_package_named_as_ours_is_refused_with_the_reason() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"'tasks' is a package of Milepost; give your package another name"):
        import_object("tasks.rewards.score")


def test_the_extra_of_the_controller_is_what_the_set_up_installs() -> None:
    lines = (ROOT / "requirements" / "controller.in").read_text("utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    assert PROJECT["optional-dependencies"]["controller"] == wanted


def test_both_lists_of_our_packages_name_the_same() -> None:
    """The command finds its packages before it can import one, so it has a list of its own."""
    assert set(PACKAGES) == OWN_PACKAGES
