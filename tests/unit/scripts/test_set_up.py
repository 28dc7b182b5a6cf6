"""The set-up trusts only what was finished, from exactly the files that are there now."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


@pytest.fixture
def environments(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import environments

    return environments


@pytest.fixture
def system_packages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import system_packages

    return system_packages


def finished(environments: ModuleType, tmp_path: Path):
    """A recipe and its finished environment."""
    requirements = tmp_path / "some.txt"
    requirements.write_text("one==1 --hash=sha256:00\n")
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    recipe = environments.Recipe(folder=tmp_path / "environment", requirements=requirements)
    environments.write_stamp(recipe)
    return recipe


def test_a_finished_environment_is_current(environments: ModuleType, tmp_path: Path) -> None:
    assert environments.is_current(finished(environments, tmp_path))


def test_a_changed_requirements_file_renews_the_environment(environments: ModuleType, tmp_path: Path) -> None:
    recipe = finished(environments, tmp_path)
    recipe.requirements.write_text("one==2 --hash=sha256:00\n")
    assert not environments.is_current(recipe)


@pytest.mark.parametrize("stamp", ["", "{", "[]", "{}", '{"digest": "0", "requirements": "", "python": ""}'])
def test_a_stamp_that_says_nothing_is_not_trusted(environments: ModuleType, tmp_path: Path, stamp: str) -> None:
    recipe = finished(environments, tmp_path)
    (recipe.folder / environments.STAMP).write_text(stamp)
    assert not environments.is_current(recipe)


def test_an_environment_whose_interpreter_is_gone_is_not_trusted(environments: ModuleType, tmp_path: Path) -> None:
    recipe = finished(environments, tmp_path)
    (recipe.folder / "bin" / "python").unlink()
    (recipe.folder / "bin" / "python").symlink_to(tmp_path / "removed")
    assert not environments.is_current(recipe)


def test_a_set_up_that_fails_leaves_nothing_that_is_trusted(environments: ModuleType, tmp_path: Path) -> None:
    recipe = finished(environments, tmp_path)
    recipe.requirements.write_text("changed\n")
    broken = tmp_path / "uv"
    broken.write_text("#!/bin/sh\necho 'no such host' >&2\nexit 2\n")
    broken.chmod(0o755)
    installer = environments.Installer(executable=broken)
    vars(installer)["pip_settings"] = {}  # asked of pip otherwise, which need not be there
    with pytest.raises(environments.EnvironmentSetupError, match="no such host"):
        environments.build(installer, recipe)
    assert not (recipe.folder / environments.STAMP).exists()


def test_the_engine_is_chosen_by_looking_and_one_setting_overrides(
    environments: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MILEPOST_ENGINE", raising=False)
    monkeypatch.setattr(environments, "GPU_FOLDER", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environments.engine_kind() == "cpu"
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: GPU-0)'\n")
    driver.chmod(0o755)
    assert environments.engine_kind() == "cuda"
    driver.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    assert environments.engine_kind() == "cpu"
    (tmp_path / "0000:01:00.0").mkdir()
    assert environments.engine_kind() == "cuda"
    monkeypatch.setenv("MILEPOST_ENGINE", "cpu")
    assert environments.engine_kind() == "cpu"
    monkeypatch.setenv("MILEPOST_ENGINE", "gpu")
    with pytest.raises(environments.EnvironmentSetupError, match="must be cpu or cuda, got 'gpu'"):
        environments.engine_kind()


def test_pips_settings_reach_uv(environments: ModuleType, tmp_path: Path) -> None:
    listing = (
        "global.cert='/etc/ssl/ca.crt'\n"
        "global.extra-index-url='file:///one file:///two'\n"
        "global.find-links='/wheels'\n"
        ":env:.find-links='/other /third'\n"
    )
    settings = environments.parse_pip_settings(listing)
    assert settings == {
        "cert": ["/etc/ssl/ca.crt"],
        "extra-index-url": ["file:///one", "file:///two"],
        "find-links": ["/other", "/third"],
    }


def test_who_may_not_install_system_packages_is_told_the_command(
    system_packages: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # neither apt-get nor sudo
    with pytest.raises(system_packages.MissingSystemPackagesError, match=r"sudo apt-get install .* libnuma1"):
        system_packages.install(["libnuma1"])


def test_a_service_that_cannot_be_had_costs_its_tests_and_nothing_else(
    system_packages: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import set_up

    made: list[str] = []

    def fail() -> None:
        raise system_packages.MissingSystemPackagesError("ask an administrator")

    monkeypatch.setattr(set_up, "PARTS", {"slurm": fail, "engine": lambda: made.append("engine"), "dev": fail})
    assert set_up.main(["--keep-going", "slurm", "engine"]) == 0
    assert made == ["engine"]
    assert "tests marked needs_slurm will be skipped" in capsys.readouterr().err
    assert set_up.main(["--keep-going", "dev"]) == 1
    assert set_up.main(["slurm"]) == 1


def test_two_set_ups_take_turns(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import set_up, pathlib, time\n"
        "set_up.LOCK = pathlib.Path(sys.argv[2])\n"
        "with set_up.taking_turns(): print(time.monotonic(), flush=True)\n"
    )
    lock = tmp_path / "setup.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        command = [sys.executable, "-c", script, str(SCRIPTS), str(lock)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}) as other:
            assert other.stderr is not None
            assert b"waiting for it" in other.stderr.readline()
            assert other.poll() is None
            released = time.monotonic()
            fcntl.flock(held, fcntl.LOCK_UN)
            output, _ = other.communicate(timeout=60)
    assert float(output) >= released
