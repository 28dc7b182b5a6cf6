"""Provenance: read from this very process, from real interpreters and real checkouts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.machine.provenance import (
    _git_state,  # pyright: ignore[reportPrivateUsage]  # the checkout is a parameter only inside
    collect_provenance,
    describe_differences,
    describe_version_differences,
    engine_versions,
)
from schemas.errors import SetupError
from schemas.provenance import Gpu, Provenance


def test_this_process_knows_what_it_is() -> None:
    provenance = collect_provenance()
    assert provenance.python_version == ".".join(str(part) for part in sys.version_info[:3])
    assert {"pyarrow", "numpy", "prefect", "math-verify"} <= provenance.packages.keys()
    assert provenance.num_cores >= 1
    assert provenance.memory_bytes > 2**28
    assert provenance.cpu_model
    assert Provenance.model_validate_json(provenance.model_dump_json()) == provenance
    assert describe_differences(provenance, provenance) == ()


def test_an_environment_is_asked_without_importing_it() -> None:
    versions = engine_versions(Path(sys.executable))
    assert versions["python"] == ".".join(str(part) for part in sys.version_info[:3])
    assert "numpy" in versions
    assert "vllm" not in versions
    both = collect_provenance(engine_python=Path(sys.executable)).versions()
    assert both["numpy"] == both["numpy (engine)"]
    assert "pyarrow" in both


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "does not exist; make the environment"),
        ("#!/bin/sh\necho 'no module named encodings' >&2\nexit 1\n", r"does not run \(no module named encodings\)"),
        ("#!/bin/sh\nexit 3\n", r"does not run \(exit code 3\)"),
        ("#!/bin/sh\necho hello\n", "is no working Python"),
    ],
)
def test_an_environment_that_does_not_run_says_what_to_do(tmp_path: Path, script: str | None, message: str) -> None:
    python = tmp_path / "python"
    if script is not None:
        python.write_text(script)
        python.chmod(0o755)
    with pytest.raises(SetupError, match=message):
        engine_versions(python)


def test_differences_are_named() -> None:
    before = collect_provenance().model_copy(
        update={
            "engine_packages": {"python": "3.11.7", "vllm": "0.32.0", "numpy": "2.3.5"},
            "packages": {"numpy": "2.4.6"},
            "python_version": "3.11.7",
            "git_commit": "a" * 40,
            "git_dirty": False,
            "gpus": (),
        }
    )
    gpu = Gpu(name="NVIDIA H200", memory_mib=143771, driver_version="580.1")
    after = before.model_copy(
        update={
            "engine_packages": {"python": "3.11.7", "vllm": "0.33.0", "numpy": "2.3.6", "triton": "3.4"},
            "git_dirty": True,
            "gpus": (gpu,),
            "host": "elsewhere",
        }
    )
    assert describe_differences(before, after) == (
        "Milepost's commit aaaaaaaaaaaa -> aaaaaaaaaaaa with changes",
        "numpy (engine) 2.3.5 -> 2.3.6",
        "triton not installed -> 3.4",
        "vllm 0.32.0 -> 0.33.0",
        "GPUs none -> NVIDIA H200 (driver 580.1)",
    )
    unasked = before.model_copy(update={"engine_packages": {}})
    assert describe_differences(unasked, before) == ()
    assert describe_version_differences({"torch": "2"}, {}) == ["torch 2 -> not installed"]


def _commit_file(folder: Path) -> Path:
    file = folder / "module.py"
    file.write_text("x = 1\n")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for arguments in (["init", "-q"], ["add", "module.py"], [*identity, "commit", "-q", "-m", "m"]):
        subprocess.run(["git", "-C", str(folder), *arguments], check=True)
    return file


def test_a_checkout_tells_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    file = _commit_file(tmp_path)
    commit, dirty = _git_state(file)
    assert len(commit or "") == 40
    assert dirty is False
    (tmp_path / "output").write_text("what a run left")
    assert _git_state(file) == (commit, False)
    file.write_text("x = 2\n")
    assert _git_state(file) == (commit, True)


def test_a_file_that_the_checkout_around_it_does_not_track_is_not_of_it(tmp_path: Path) -> None:
    _commit_file(tmp_path)
    installed = tmp_path / "site-packages" / "provenance.py"
    installed.parent.mkdir()
    installed.write_text("")
    assert _git_state(installed) == (None, None)


def test_gpus_are_the_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf 'NVIDIA H200, 143771, 580.1\\nGB10, [N/A], 581\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert collect_provenance().gpus == (
        Gpu(name="NVIDIA H200", memory_mib=143771, driver_version="580.1"),
        Gpu(name="GB10", memory_mib=0, driver_version="581"),
    )


def test_provenance_is_json() -> None:
    assert json.loads(collect_provenance().model_dump_json())["milepost_version"]
