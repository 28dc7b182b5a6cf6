"""`SlurmClient` by Slurm's commands: they match the cluster by themselves, whatever its version.

Their JSON is not used: in 22.05 it names FAILED jobs a success and gives raw wait statuses.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from infra.launchers.environment import clean_environment
from infra.slurm.client import JobEnd, JobRecord, NodeRecord, StepEnd
from schemas.errors import SetupError, TransientError
from schemas.slurm import SlurmJobState, parse_time_limit

_TIMEOUT_S: Final = 60.0
"""A command waits about 10 s for a controller that does not answer."""
_JOB_LINE: Final = re.compile(r"(\d+)\|(\d+|N/A)\|([^|]*)\|([^|]*)\|([^|]*)\|(.*)")
_FIELD: Final = re.compile(r"(\w+)=(\S*)")
_GPU: Final = re.compile(r"(?:^|,)gpu:(?:[^:,(]+:)?(\d+)")
_NO_ANSWER: Final = re.compile(
    r"unable to contact slurm controller|socket timed out|connection (?:refused|reset|timed out)|connect failure|"
    r"temporarily unable|zero bytes|standby mode|unexpected message received|transport endpoint|communication|"
    r"munge encode failed|protocol authentication error",
    re.IGNORECASE,
)
"""What Slurm says when it may work the next time."""
_NOT_AVAILABLE: Final = "node configuration is not available"
_HINTS: Final = {
    "invalid partition": "scheduler.slurm.partition must be one of those that `sinfo` lists",
    "invalid account": "scheduler.slurm.account must be one of those that `sacctmgr show assoc user=$USER` lists",
    "invalid qos": "scheduler.slurm.qos must be one of those that `sacctmgr show qos` lists",
    "time limit": "lower scheduler.slurm.time to what `sinfo -o '%P %l'` allows",
    _NOT_AVAILABLE: "no node, but for those left out, has that many GPUs, cores or that much "
    "memory: lower t and p in rollout.backend, scheduler.slurm.cpus_per_replica or scheduler.slurm.memory, or shorten "
    "scheduler.slurm.exclude_nodes",
    "invalid node name": "scheduler.slurm.exclude_nodes must name nodes that `sinfo -N` lists",
    "reservation": "scheduler.slurm.reservation must be one of those that `scontrol show reservation` lists",
    "feature": "scheduler.slurm.constraint must name features that `sinfo -o '%f'` lists",
    "violates accounting": "ask for fewer replicas (d in rollout.backend), or another account or qos",
}


class CliClient:
    """`infra.slurm.client.SlurmClient` by sbatch, squeue, scontrol, sacct, scancel and sinfo."""

    def __init__(self) -> None:
        """Remember which cluster this process talks with."""
        self._env = clean_environment(os.environ) | cluster_environment()

    def submit(self, script: Path, options: Sequence[str], env: Mapping[str, str]) -> str:
        """Submit an array and return its number.

        Raises:
            SetupError: Slurm refuses it, with its words and what to change.
            TransientError: Slurm did not answer.
        """
        command = ["sbatch", "--parsable", "--export=ALL", *options, os.fspath(script)]
        try:
            answer = _run(command, dict(env))
        except _RefusedError as exc:
            raise SetupError(f"sbatch refused the job: {exc}; {_hint(str(exc)) or f'the script is {script}'}") from exc
        return answer.strip().partition(";")[0]

    def rehearse(self, script: str, *, all_nodes_there: bool) -> None:
        """Return if `sbatch --test-only` would take a job.

        It calls unavailable what only nodes have that are away, where sbatch lets a job wait for them.
        """
        try:
            _run(["sbatch", "--test-only"], self._env, stdin=script)
        except _RefusedError as exc:
            if all_nodes_there or _NOT_AVAILABLE not in str(exc).lower():
                raise SetupError(
                    f"sbatch would refuse a replica: {exc}; {_hint(str(exc)) or 'see scheduler.slurm.extra'}"
                ) from exc

    def jobs(self, name: str) -> list[JobRecord]:
        """Return this user's jobs of that name, ended ones too, from one squeue."""
        # -r: one line per element; the comment last, as it may hold the separator
        command = ["squeue", "-h", "-r", "--me", "-t", "all", f"--name={name}", "-o", "%F|%K|%T|%r|%N|%k"]
        return [
            JobRecord(
                job_id=match[1] if match[2] == "N/A" else f"{match[1]}_{match[2]}",
                state=SlurmJobState.parse(match[3]),
                reason=match[4],
                node=match[5],
                comment=match[6],
            )
            for line in self._ask(command).splitlines()
            if (match := _JOB_LINE.fullmatch(line))
        ]

    def end_of(self, job_id: str) -> JobEnd | None:
        """Return how a job ended: from the controller, else from the accounting where there is one."""
        return self._end_by_scontrol(job_id) or self._end_by_sacct(job_id)

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Ask for the end of jobs by one scancel."""
        if job_ids:
            self._ask(["scancel", "-Q", *job_ids])

    def release(self) -> str:
        """Return the release of Slurm's commands, such as `22.05.8`.

        Raises:
            SetupError: they are not installed.
            TransientError: they do not answer.
        """
        return self._ask(["scontrol", "--version"]).split()[-1]

    def nodes(self) -> list[NodeRecord]:
        """Return every node once for each of its partitions, from one sinfo."""
        listing = self._ask(["sinfo", "-h", "-N", "-o", "%N|%P|%a|%l|%c|%G|%T"])
        return [_node(*line.split("|", 6)) for line in listing.splitlines() if line.count("|") >= 6]

    def _end_by_scontrol(self, job_id: str) -> JobEnd | None:
        try:
            answer = _run(["scontrol", "-o", "show", "job", job_id], self._env)
        except _RefusedError:
            return None  # not remembered any more
        fields = dict(_FIELD.findall(answer.partition(" JobState=")[2].join(("JobState=", ""))))
        state = SlurmJobState.parse(fields.get("JobState", ""))
        if not state.is_terminal:
            return None
        job = _step(state, fields.get("ExitCode", ""))
        return JobEnd(job=job, reason=fields.get("Reason", ""), node=_node_name(fields.get("NodeList", "")))

    def _end_by_sacct(self, job_id: str) -> JobEnd | None:
        try:
            answer = _run(["sacct", "-n", "-P", "-D", "-j", job_id, "-o", "JobID,State,ExitCode,NodeList"], self._env)
        except (_RefusedError, TransientError):
            return None  # a cluster without accounting
        job: StepEnd | None = None
        node = ""
        steps: list[StepEnd] = []
        for line in answer.splitlines():
            name, state, exit_code, nodes = (*line.split("|"), "", "", "")[:4]
            end = _step(SlurmJobState.parse(state), exit_code)
            if name == job_id:
                job, node = end, _node_name(nodes)  # the last row is the newest
            elif name.startswith(f"{job_id}."):
                steps.append(end)
        return None if job is None or not job.state.is_terminal else JobEnd(job=job, node=node, steps=tuple(steps))

    def _ask(self, command: Sequence[str]) -> str:
        try:
            return _run(command, self._env)
        except _RefusedError as exc:
            raise TransientError(f"{command[0]} failed: {exc}") from exc


class _RefusedError(Exception):
    """A command ended with an error that is an answer."""


def cluster_environment() -> dict[str, str]:
    """Return the variable that says which cluster Slurm's commands talk with, where it is set."""
    return {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}


def _hint(said: str) -> str | None:
    """Return what to change where Slurm says no in words that are known."""
    return next((hint for words, hint in _HINTS.items() if words in said.lower()), None)


def _run(command: Sequence[str], env: Mapping[str, str], *, stdin: str = "") -> str:
    """Return what a command says.

    Raises:
        _RefusedError: it says no.
        TransientError: Slurm did not answer.
        SetupError: it is not installed, or SLURM_CONF names no file.
    """
    if shutil.which(command[0], path=env.get("PATH")) is None:
        raise SetupError(
            f"{command[0]} is not installed here: run on a login node of the cluster, or try the Slurm path with "
            "`milepost devcluster up`; scheduler.type=local needs no Slurm"
        )
    conf = env.get("SLURM_CONF")
    if conf is not None and not Path(conf).is_file():  # commands would look for it for a minute
        raise SetupError(
            f"SLURM_CONF is {conf!r}, which is no file: unset it for the cluster that this machine belongs to, or name "
            "the slurm.conf of another; after `milepost devcluster down` it names one that is gone"
        )
    try:
        result = subprocess.run(
            command, env=env, input=stdin, capture_output=True, text=True, errors="replace",
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as exc:
        raise TransientError(f"{command[0]} did not answer within {_TIMEOUT_S:g} s") from exc
    if result.returncode == 0:
        return result.stdout
    said = " ".join(result.stderr.split()) or f"exit code {result.returncode}"
    if _NO_ANSWER.search(said):
        raise TransientError(f"{command[0]}: Slurm does not answer ({said})")
    raise _RefusedError(said)


def _step(state: SlurmJobState, exit_code: str) -> StepEnd:
    code, _, signal = exit_code.partition(":")
    return StepEnd(state=state, exit_code=_number(code), signal=_number(signal))


def _node_name(text: str) -> str:
    return "" if text in ("(null)", "None assigned") else text


def _node(*fields: str) -> NodeRecord:
    node, partition, available, limit, cpus, gres, state = fields
    return NodeRecord(
        node=node,
        partition=partition.rstrip("*"),
        is_default=partition.endswith("*"),
        partition_is_up=available == "up",
        time_limit_s=_time_limit(limit),
        num_cpus=_number(cpus),
        num_gpus=sum(int(count) for count in _GPU.findall(gres)),
        state=state,
    )


def _time_limit(text: str) -> int | None:
    try:
        return parse_time_limit(text)
    except ValueError:
        return None  # n/a


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
