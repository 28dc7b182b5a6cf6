"""The command line: what it shows, what it returns, and that asking for help is quick."""

import json
import os
import resource
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from infra.fileroot.run_directory import create_run
from schemas.run import RunState
from schemas.states import RunStatus

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = ("evaluate", "runs", "compare", "gate", "regrade", "drift", "refresh", "logs", "doctor", "devcluster")
DEMO = str(ROOT / "examples" / "demo.yaml")


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


def unfinished_run(fileroot: Path) -> str:
    """Leave a run behind as a killed command does."""
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    folder, lock = create_run(fileroot, "0123456789abcdef", now)
    folder.write_state(
        RunState(
            run_id=folder.run_id,
            plan_key="0123456789abcdef",
            experiment_name="exp",
            trial_name="trial0",
            checkpoint="ckpt/[7]",
            global_step=None,
            status=RunStatus.RUNNING,
            started_at=now,
        )
    )
    lock.release()
    return folder.run_id


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version") == (0, version("milepost") + "\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], *([name, "--help"] for name in COMMANDS)])
def test_help_is_there(arguments: list[str]) -> None:
    code, shown, errors = run(*arguments)
    assert (code, errors) == (0, "")
    assert "Usage:" in shown
    if len(arguments) == 1:
        for name in COMMANDS:
            assert name in shown


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom flows.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'prefect', 'pyarrow', 'numpy', 'scipy', 'datasets', 'transformers', 'reasoning_gym', 'pydantic'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stderr == "[]\n"
    # 0.3 s on a quiet machine, of whatever speed
    assert (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime) < 3.0


def test_a_command_that_does_not_exist_is_a_wrong_input() -> None:
    code, shown, errors = run("frobnicate")
    assert (code, shown) == (2, "")
    assert "No such command 'frobnicate'" in errors


def test_the_resolved_config_names_the_origin_of_each_value_and_starts_nothing(tmp_path: Path) -> None:
    code, shown, errors = run("evaluate", DEMO, f"cluster.fileroot={tmp_path / 'out'}", "seed=7", "--print-config")
    assert (code, errors) == (0, "")
    lines = {line.split(":")[0].strip(): line for line in shown.splitlines()}
    assert lines["seed"].split() == ["seed:", "7", "#", "override", "seed=7"]
    assert lines["trial_name"].endswith("# default")
    assert lines["experiment_name"].endswith("demo.yaml:4")
    assert not (tmp_path / "out").exists()


def test_no_runs_yet(tmp_path: Path) -> None:
    assert run("runs", "--fileroot", str(tmp_path)) == (
        0,
        "no runs yet; start one with: milepost evaluate CONFIG\n",
        "",
    )
    code, shown, _ = run("runs", "--fileroot", str(tmp_path), "--json")
    assert (code, json.loads(shown)) == (0, {"runs": [], "unfinished": []})
    assert list(tmp_path.iterdir()) == [], "looking leaves nothing behind"


def test_an_unfinished_run_is_listed_as_one_that_can_be_resumed(tmp_path: Path) -> None:
    run_id = unfinished_run(tmp_path)
    code, shown, _ = run("runs", "--fileroot", str(tmp_path))
    assert code == 0
    assert run_id in shown
    assert "ckpt/[7]" in shown, "names are text, not markup"
    assert "resum" in shown
    code, shown, _ = run("runs", "--fileroot", str(tmp_path), "--json")
    assert [state["run_id"] for state in json.loads(shown)["unfinished"]] == [run_id]


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    run_id = unfinished_run(tmp_path)
    (tmp_path / "runs" / run_id / "run.json").write_text("{")
    code, shown, errors = run("runs", "--fileroot", str(tmp_path))
    assert (code, shown) == (2, "")
    assert run_id in errors
    assert "remove" in errors


def test_a_file_in_the_place_of_the_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, errors = run("runs", "--fileroot", str(tmp_path / "file"))
    assert code == 2
    assert "is a file" in errors


def test_doctor_says_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    code, shown, errors = run(
        *("doctor", "--quick", "--json", "--fileroot", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "none"))
    )
    checks = {check["name"]: check for check in json.loads(shown)["checks"]}
    assert (code, errors) == (1, "looking at this machine …\n")
    assert checks["checkpoint"]["status"] == "missing"
    assert checks["checkpoint"]["fix"]
    assert checks["python"]["status"] == "ok"
    assert checks["results folder"]["status"] == "ok"
    assert not (tmp_path / "out").exists()


def test_doctor_for_people_gives_one_line_per_check(tmp_path: Path) -> None:
    code, shown, _ = run("doctor", "--quick", "--fileroot", str(tmp_path), "--checkpoint", str(tmp_path / "none"))
    assert code == 1
    lines = [line for line in shown.splitlines() if line.startswith(("ok", "warning", "missing"))]
    assert any(line.startswith("missing") and "checkpoint" in line for line in lines)
    assert "->" in shown


def test_doctor_refuses_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    code, _, errors = run("doctor", "--quick", "--engine-python", str(tmp_path / "python"))
    assert code == 2
    assert str(tmp_path / "python") in errors


def test_output_survives_a_terminal_without_unicode(tmp_path: Path) -> None:
    unfinished_run(tmp_path)
    command = [sys.executable, "-c", "from flows.cli import main; main()", "runs", "--fileroot", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_logs_of_a_run_are_one_command_away(tmp_path: Path) -> None:
    name = unfinished_run(tmp_path)
    code, _, said = run("logs", name, "--fileroot", str(tmp_path))
    assert (code, "no log of a worker" in said) == (2, True)
    folder = tmp_path / "runs" / name / "logs"
    folder.mkdir()
    (folder / "attempt-0001-replica-000.log").write_text("".join(f"line {number}\n" for number in range(100)))
    (folder / "attempt-0002-replica-000.log").write_text("again\n")
    (folder / "attempt-0001-replica-001.log").write_text("other\n")
    code, shown, _ = run("logs", name, "--fileroot", str(tmp_path))
    assert (code, "line 99" in shown, "line 5\n" in shown, "other" in shown) == (0, True, False, True)
    code, shown, _ = run("logs", name, "0", "--fileroot", str(tmp_path))
    assert (code, "line 5\n" in shown, "again" in shown, "other" in shown) == (0, True, True, False)
    code, _, said = run("logs", name, "7", "--fileroot", str(tmp_path))
    assert (code, "replica 7" in said) == (2, True)
    (folder / "attempt-0003-replica-000.log").mkdir()
    code, shown, said = run("logs", name, "0", "--fileroot", str(tmp_path))
    assert (code, "again" in shown) == (2, True)
    assert "attempt-0003-replica-000.log cannot be read: Is a directory" in said
    code, _, said = run("logs", "absent", "--fileroot", str(tmp_path))
    assert (code, name in said) == (2, True)
