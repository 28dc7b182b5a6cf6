"""The built wheel in an environment of its own, used from a project whose packages have the names of ours."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
CONFIG = """
experiment_name: wheel
actor: {{path: {checkpoint}}}
valid_dataset: {{path: "reasoning_gym:chain_sum?size=4&seed=1"}}
gconfig: {{n_samples: 1, max_new_tokens: 8}}
engine: {{stand_in: {{}}, python: {python}}}
"""


@pytest.fixture(scope="module")
def installed_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel; other packages are those of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "milepost", "flows", "tasks", "infra", "schemas"):
        (source / name).symlink_to(ROOT / name)
    subprocess.run([sys.executable, "-c", BUILD, folder], cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    (packages,) = folder.glob("env/lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (here,) = (entry for entry in sys.path if entry.endswith("site-packages"))
    (packages / "others.pth").write_text(here, "utf-8")  # its own .pth files, ours among them, are not read
    return folder / "env" / "bin" / "python"


@pytest.mark.needs_engine
def test_an_installed_milepost_evaluates_in_a_project_with_packages_of_the_same_names(
    installed_python: Path, engine_python: Path, demo_checkpoint: Path, tmp_path: Path
) -> None:
    for name in ("flows", "tasks", "infra", "schemas"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('a package of the user')", "utf-8")
    (tmp_path / "flows" / "server.py").touch()
    (tmp_path / "eval.yaml").write_text(CONFIG.format(checkpoint=demo_checkpoint, python=engine_python), "utf-8")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [installed_python, "-P", "-m", "milepost", "evaluate", "eval.yaml", "--json"],
        cwd=tmp_path,
        env=inherited | {"PYTHONPATH": str(tmp_path), "PREFECT_HOME": str(tmp_path / "prefect")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_scored"] == 4
