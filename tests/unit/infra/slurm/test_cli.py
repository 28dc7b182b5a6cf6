"""What Slurm's commands say is told apart: a refusal, no answer, nothing there."""

from pathlib import Path

import pytest

from infra.slurm.cli import CliClient
from infra.slurm.diagnosis import check_slurm
from infra.slurm.selection import select_client
from schemas.diagnosis import CheckStatus
from schemas.errors import SetupError, TransientError


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that every command prints on stderr before it fails."""
    words = tmp_path / "said"
    for name in ("sbatch", "sinfo", "scontrol"):
        (tmp_path / name).write_text(f"#!/bin/sh\ncat '{words}' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return words


@pytest.mark.parametrize(
    "words",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Munge encode failed: Failed to access socket (Did you start munged?)",
        "sbatch: error: Batch job submission failed: Protocol authentication error",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
    ],
)
def test_no_answer_is_never_a_refusal(said: Path, tmp_path: Path, words: str) -> None:
    said.write_text(words)
    with pytest.raises(TransientError, match="does not answer"):
        CliClient().submit(tmp_path / "script", [], {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    with pytest.raises(TransientError, match="does not answer"):
        CliClient().nodes()


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("Invalid partition name specified", r"slurm\.partition"),
        ("Invalid account or account/partition combination specified", r"slurm\.account"),
        ("Invalid qos specification", r"slurm\.qos"),
        ("Requested time limit is invalid (missing or exceeds some limit)", r"slurm\.time"),
        ("Requested node configuration is not available", r"rollout\.backend"),
        ("Job violates accounting/QOS policy (job submit limit)", r"another account or qos"),
        ("something that nobody has seen", r"the script is"),
    ],
)
def test_a_refusal_names_what_to_change(said: Path, tmp_path: Path, words: str, key: str) -> None:
    said.write_text(f"sbatch: error: Batch job submission failed: {words}")
    with pytest.raises(SetupError, match=key):
        CliClient().submit(tmp_path / "script", [], {"PATH": f"{tmp_path}:/usr/bin:/bin"})


def test_a_slurm_conf_that_is_gone_is_named_at_once(
    said: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said.write_text("")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "gone.conf"))
    with pytest.raises(SetupError, match=r"gone\.conf', which is no file"):
        CliClient().nodes()
    check = check_slurm(select_client("auto"))
    assert check.status is CheckStatus.WARNING
    assert "gone.conf" in check.detail


def test_commands_that_are_absent_are_named_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "gone.conf"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=r"sinfo is not installed.*devcluster"):
        CliClient().nodes()


def test_a_machine_without_slurm_lacks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = check_slurm(select_client("auto"))
    assert (check.status, check.fix) == (CheckStatus.OK, "")
