"""What Slurm's commands say is told apart: a refusal, no answer, nothing there."""

import resource
from pathlib import Path

import pytest

from infra.slurm.cli import CliClient
from infra.slurm.client import JobEnd, StepEnd
from infra.slurm.diagnosis import check_slurm
from infra.slurm.selection import select_client
from schemas.diagnosis import CheckStatus
from schemas.errors import SetupError, TransientError
from schemas.slurm import SlurmJobState

S = SlurmJobState


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


@pytest.mark.parametrize(("answer", "number"), [("23", "23"), ("23;other", "23"), ("", None), ("Welcome!\n23", None)])
def test_a_submission_is_answered_by_a_number_or_not_at_all(
    said: Path, tmp_path: Path, answer: str, number: str | None
) -> None:
    client, env = answering(tmp_path, "sbatch", answer), {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    if number is not None:
        assert client.submit(tmp_path / "script", [], env) == number
        return
    with pytest.raises(TransientError, match=r"sbatch answered .* no number of a job"):
        client.submit(tmp_path / "script", [], env)


SHOW_JOB = (
    "JobId=24 ArrayJobId=23 ArrayTaskId=0 JobName=milepost-r-0123abcd UserId=me(1000) GroupId=me(1000) MCS_label=N/A "
    "Priority=1 Nice=0 Account=(null) QOS=(null) JobState={state} Reason={reason} Dependency=(null) Requeue=0 "
    "Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code} RunTime=00:00:01 Partition=main AllocNode:Sid=login:7 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList=n1 BatchHost=n1 NumNodes=1 "
    "Command=/runs/a folder JobState=COMPLETED ExitCode=0:0 NodeList=n9/job.sh WorkDir=/ StdErr=/x StdOut=/x Power=\n"
)


def answering(folder: Path, command: str, answer: str) -> CliClient:
    """A client one of whose commands says that."""
    (folder / "answer").write_text(answer)
    (folder / command).write_text(f"#!/bin/sh\ncat '{folder}/answer'\n")
    return CliClient()


@pytest.mark.parametrize(
    ("state", "reason", "code", "end"),
    [
        ("FAILED", "NonZeroExitCode", "7:0", StepEnd(state=S.FAILED, exit_code=7, signal=0)),
        ("OUT_OF_MEMORY", "OutOfMemory", "0:125", StepEnd(state=S.OUT_OF_MEMORY, exit_code=0, signal=125)),
        ("COMPLETING", "None", "0:0", None),
    ],
)
def test_the_end_of_a_job_is_read_whatever_its_folder_is_called(
    said: Path, tmp_path: Path, state: str, reason: str, code: str, end: StepEnd | None
) -> None:
    client = answering(tmp_path, "scontrol", SHOW_JOB.format(state=state, reason=reason, code=code))
    assert client.end_of("23_0") == (None if end is None else JobEnd(job=end, reason=reason, node="n1"))


def test_the_accounting_is_asked_once_for_all_jobs_and_their_steps(said: Path, tmp_path: Path) -> None:
    (tmp_path / "sacct").touch(mode=0o755)
    rows = (
        "23_0|FAILED|1:0|n1\n23_0.batch|FAILED|1:0|n1\n23_0.0|OUT_OF_MEMORY|0:125|n1\n"
        "23_1|RUNNING|0:0|n2\n23_1.batch|RUNNING|0:0|n2\n"
        "23_2|PREEMPTED|0:0|n3\n23_2|CANCELLED by 0|0:0|None assigned\n"
    )
    client = answering(tmp_path, "sacct", rows)
    ends = client.accounted_ends(["23_0", "23_1", "23_2", "23_3"])
    steps = (StepEnd(state=S.FAILED, exit_code=1, signal=0), StepEnd(state=S.OUT_OF_MEMORY, exit_code=0, signal=125))
    assert ends == {
        "23_0": JobEnd(job=steps[0], node="n1", steps=steps),
        "23_2": JobEnd(job=StepEnd(state=S.CANCELLED, exit_code=0, signal=0)),
    }
    (tmp_path / "sacct").write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n")
    assert client.accounted_ends(["23_0"]) is None


def test_the_size_of_an_array_is_the_clusters(said: Path, tmp_path: Path) -> None:
    config = "Configuration data as of now\nMaxArraySize            = {}\nMaxBatchRequeue         = 5\n"
    assert answering(tmp_path, "scontrol", config.format(301)).max_array_size() == 301
    assert answering(tmp_path, "scontrol", config.format(0)).max_array_size() == 1


def test_a_process_that_cannot_be_started_is_told_apart_by_whether_that_passes(
    said: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said.write_text("")
    with pytest.raises(SetupError, match=r"sbatch cannot be started: Argument list too long; unset what is long"):
        CliClient().submit(tmp_path / "script", [], {"PATH": f"{tmp_path}:/usr/bin:/bin", "LONG": "x" * (1 << 20)})
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "sinfo").write_text("no program")
    with pytest.raises(SetupError, match=r"sinfo cannot be started: Exec format error"):
        CliClient().nodes()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        with pytest.raises(TransientError, match=r"sinfo cannot be started now: Too many open files"):
            CliClient().nodes()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


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
