"""Each line of the diagnosis tells a broken machine from a whole one."""

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from infra import diagnostics
from infra.diagnostics import Surroundings, diagnose
from infra.machine.resources import GpuMemory
from schemas.diagnosis import CheckStatus

GPU = GpuMemory(name="NVIDIA H200", memory_bytes=140 << 30, free_bytes=139 << 30)
THIS_PYTHON = Path(sys.executable)


def program(folder: Path, script: str) -> Path:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds no package at all."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def test_an_engine_python_that_is_missing(tmp_path: Path) -> None:
    check = diagnostics.check_engine(tmp_path / "bin" / "python")
    assert check.status is CheckStatus.MISSING
    assert str(tmp_path) in check.detail
    assert "make setup" in check.fix


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Illegal instruction' >&2; exit 132", "132 during imports: Illegal instruction"),
        ("kill -9 $$", "-9"),
        ("echo hello", "ended with 0"),
    ],
)
def test_an_engine_python_that_dies(tmp_path: Path, script: str, words: str) -> None:
    check = diagnostics.check_engine(program(tmp_path, script))
    assert check.status is CheckStatus.MISSING
    assert words in check.detail


def test_an_engine_python_that_is_no_program(tmp_path: Path) -> None:
    file = tmp_path / "python"
    file.write_text("text")
    assert "cannot be started: Permission denied" in diagnostics.check_engine(file).detail


def test_an_engine_python_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "IMPORT_TIMEOUT_S", 0.2)
    check = diagnostics.check_engine(program(tmp_path, "exec sleep 60"))
    assert check.status is CheckStatus.MISSING
    assert "did not finish its imports" in check.detail


@pytest.mark.parametrize("quick", [True, False])
def test_an_environment_without_an_engine(empty_environment: Path, quick: bool) -> None:
    check = diagnostics.check_engine(empty_environment, quick=quick)
    assert check.status is CheckStatus.MISSING
    assert "vllm: not installed" in check.detail
    assert "torch: not installed" in check.detail


def test_an_environment_without_the_controllers_packages(empty_environment: Path) -> None:
    check = diagnostics.check_controller(quick=True, python=empty_environment)
    assert check.status is CheckStatus.MISSING
    assert "prefect: not installed" in check.detail


def test_the_controllers_packages_have_versions() -> None:
    check = diagnostics.check_controller(quick=True)
    assert check.status is CheckStatus.OK
    assert "prefect 3." in check.detail


def test_a_package_that_fails_to_import_is_told_apart_from_an_absent_one(
    empty_environment: Path, tmp_path: Path
) -> None:
    site = next(empty_environment.parents[1].glob("lib/python3*/site-packages"))
    (site / "torch.py").write_text("raise OSError('libgomp.so.1: cannot open shared object file')")
    (site / "torch-9.9.dist-info").mkdir()
    (site / "torch-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    packages = {"torch": "torch", "vllm": "vllm"}
    versions = diagnostics.probe(empty_environment, packages, quick=True)
    imported = diagnostics.probe(empty_environment, packages, quick=False)
    assert [package.version for package in versions] == ["9.9", None]
    assert imported[0].error == "OSError: libgomp.so.1: cannot open shared object file"
    assert imported[1].error is None


@pytest.mark.parametrize(
    ("gpus", "kind", "status"),
    [
        ([GPU], "cuda", CheckStatus.OK),
        ([GPU], "none", CheckStatus.OK),
        ([GPU], "cpu", CheckStatus.WARNING),
        ([], "cpu", CheckStatus.OK),
        ([], "cuda", CheckStatus.MISSING),
    ],
)
def test_gpus_and_the_engines_build_must_agree(gpus: list[GpuMemory], kind: str, status: CheckStatus) -> None:
    check = diagnostics.check_gpus(gpus, kind)  # pyright: ignore[reportArgumentType] -- from a table
    assert check.status is status
    assert (check.fix != "") == (status is not CheckStatus.OK)


def test_a_processor_without_avx2_cannot_run_vllm() -> None:
    check = diagnostics.check_cpu(frozenset({"sse4_2"}))
    assert check.status is CheckStatus.MISSING
    assert "transformers" in check.fix
    slow = diagnostics.check_cpu(frozenset({"avx2"}))
    assert slow.status is CheckStatus.WARNING
    assert "actor.dtype=float32" in slow.fix
    assert diagnostics.check_cpu(frozenset({"avx2", "avx512f"})).status is CheckStatus.OK


def test_memory_must_hold_the_engine(tmp_path: Path) -> None:
    assert diagnostics.check_memory(tmp_path, available_bytes=2 << 30).status is CheckStatus.MISSING
    assert diagnostics.check_memory(tmp_path, available_bytes=3 << 30).status is CheckStatus.OK


class Api(BaseHTTPRequestHandler):
    """One that is healthy below /api, wants a key below /cloud and, but for its health, below /own; no more."""

    def do_GET(self) -> None:
        status = {"/api/health": 200, "/own/health": 200, "/own/version": 401, "/cloud/health": 401}.get(self.path, 404)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"true")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_no_prefect_api_is_no_fault() -> None:
    assert diagnostics.check_prefect(None).status is CheckStatus.OK


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api", CheckStatus.OK, "healthy"),
        ("/api/", CheckStatus.OK, "healthy"),
        ("/elsewhere", CheckStatus.MISSING, "answered 404"),
        ("/cloud", CheckStatus.MISSING, "refused the request (401)"),
        ("/own", CheckStatus.MISSING, "refused the request (401)"),
    ],
)
def test_a_prefect_api_is_asked_for_its_health(address: str, path: str, status: CheckStatus, words: str) -> None:
    check = diagnostics.check_prefect(address + path)
    assert check.status is status
    assert words in check.detail


@pytest.mark.parametrize("url", ["http://127.0.0.1:{closed_port}/api", "not a url", "http://[::1"])
def test_a_prefect_api_that_does_not_answer(url: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can answer there
        check = diagnostics.check_prefect(url.format(closed_port=unused.getsockname()[1]))
    assert check.status is CheckStatus.MISSING
    assert "does not answer" in check.detail


def test_a_results_folder_need_not_exist_and_is_left_as_it_was(tmp_path: Path) -> None:
    check = diagnostics.check_fileroot(tmp_path / "new" / "deeper")
    assert check.status is CheckStatus.OK
    assert "can be created" in check.detail
    assert list(tmp_path.iterdir()) == []


def test_a_results_folder_that_cannot_be_written(tmp_path: Path) -> None:
    for folder in (Path("/proc/milepost"), tmp_path / "file" / "below"):
        (tmp_path / "file").touch()
        check = diagnostics.check_fileroot(folder)
        assert check.status is CheckStatus.MISSING
        assert "cluster.fileroot" in check.fix


def test_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    check = diagnostics.check_checkpoint(tmp_path / "step-1")
    assert check.status is CheckStatus.MISSING
    assert "step-1" in check.detail


def test_a_diagnosis_has_a_line_for_everything_and_a_fix_for_each_fault(tmp_path: Path) -> None:
    surroundings = Surroundings(
        engine_python=tmp_path / "python", fileroot=tmp_path, checkpoint=tmp_path / "step-1", prefect_api_url=None
    )
    checks = diagnose(surroundings, quick=True)
    assert [check.name for check in checks] == [
        "python",
        "controller packages",
        "engine environment",
        "GPUs",
        "CPU",
        "memory",
        "Prefect API",
        "slurm",
        "results folder",
        "checkpoint",
    ]
    assert all((check.fix == "") == (check.status is CheckStatus.OK) for check in checks)
    assert {check.name for check in checks if check.status is CheckStatus.MISSING} >= {
        "engine environment",
        "checkpoint",
    }


def test_doctor_looks_for_what_the_controller_is_made_from() -> None:
    lines = (Path(__file__).resolve().parents[3] / "requirements" / "controller.in").read_text("utf-8").splitlines()
    asked_for = {re.split(r"[\[=<>]", line)[0] for line in lines if line and not line.startswith("#")}
    assert set(diagnostics.CONTROLLER_PACKAGES) <= asked_for
