"""`SlurmClient` by Slurm's commands: they match the cluster by themselves, whatever its version.

Their JSON is not used: in 22.05 it names FAILED jobs a success and gives raw wait statuses.
"""

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from infra.jobs.environment import clean_environment
from infra.slurm.client import JobEnd, JobRecord, NodeRecord, StepEnd
from schemas.errors import SetupError, TransientError
from schemas.slurm import SlurmJobState, parse_time_limit

_TIMEOUT_S: Final = 60.0
"""A command waits about 10 s for a controller that does not answer."""
_ACCOUNTING_TIMEOUT_S: Final = 10.0
"""What is asked of the accounting can do without: its database must not hold the look at the queue up."""
_JOB_LINE: Final = re.compile(r"(\d+)\|(\d+|N/A)\|([^|]*)\|([^|]*)\|([^|]*)\|(.*)")
_FIELD: Final = re.compile(r"(\w+)=(\S*)")
_MAX_ARRAY_SIZE: Final = re.compile(r"^MaxArraySize\s*=\s*(\d+)", re.MULTILINE)
_GPU: Final = re.compile(r"(?:^|,)gpu:(?:[^:,(]+:)?(\d+)")
_NO_ANSWER: Final = re.compile(
    r"unable to contact slurm controller|socket timed out|connection (?:refused|reset|timed out)|connect failure|"
    r"temporarily unable|zero bytes|standby mode|unexpected message received|transport endpoint|communication|"
    r"munge encode failed|protocol authentication error",
    re.IGNORECASE,
)
"""What Slurm says when it may work the next time."""
_BUSY: Final = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Why a machine that has too much to do starts no process."""
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
            TransientError: Slurm did not answer, or not with a number.
        """
        command = ["sbatch", "--parsable", "--export=ALL", *options, os.fspath(script)]
        try:
            answer = _run(command, dict(env))
        except _RefusedError as exc:
            raise SetupError(f"sbatch refused the job: {exc}; {_hint(str(exc)) or f'the script is {script}'}") from exc
        number = answer.strip().partition(";")[0]
        if not number.isdecimal():
            raise TransientError(f"sbatch answered {answer[:200]!r} and no number of a job; see scheduler.slurm.extra")
        return number

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
        # -a: jobs of hidden partitions too, else a running replica is taken for a lost one
        command = ["squeue", "-a", "-h", "-r", "--me", "-t", "all", f"--name={name}", "-o", "%F|%K|%T|%r|%N|%k"]
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
        """Return how a job ended, from one `scontrol show job`."""
        try:
            answer = _run(["scontrol", "-a", "-o", "show", "job", job_id], self._env)
        except _RefusedError:
            return None  # not remembered any more
        fields: dict[str, str] = {}
        for name, value in _FIELD.findall(f"JobState={answer.partition(' JobState=')[2]}"):
            fields.setdefault(name, value)  # words of a path may look like fields: paths come last
        state = SlurmJobState.parse(fields["JobState"])
        if not state.is_terminal:
            return None
        job = _step(state, fields.get("ExitCode", ""))
        return JobEnd(job=job, reason=fields.get("Reason", ""), node=_node_name(fields.get("NodeList", "")))

    def accounted_ends(self, job_ids: Sequence[str]) -> dict[str, JobEnd] | None:
        """Return how jobs ended, with their steps, from one sacct."""
        command = ["sacct", "-n", "-P", "-D", "-j", ",".join(job_ids), "-o", "JobID,State,ExitCode,NodeList"]
        try:
            answer = _run(command, self._env, timeout_s=_ACCOUNTING_TIMEOUT_S)
        except (_RefusedError, TransientError):
            return None
        ends: dict[str, JobEnd] = {}
        steps: dict[str, list[StepEnd]] = {}
        for line in answer.splitlines():
            name, state, exit_code, nodes = (*line.split("|"), "", "", "")[:4]
            job_id, _, step = name.partition(".")
            end = _step(SlurmJobState.parse(state), exit_code)
            if step:
                steps.setdefault(job_id, []).append(end)
            else:
                ends[job_id] = JobEnd(job=end, node=_node_name(nodes))  # the last row is the newest
        return {
            job_id: replace(end, steps=tuple(steps.get(job_id, ())))
            for job_id, end in ends.items()
            if end.job.state.is_terminal
        }

    def max_array_size(self) -> int:
        """Return how many elements an array may have, from the cluster's configuration."""
        match = _MAX_ARRAY_SIZE.search(self._ask(["scontrol", "show", "config"]))
        return max(1, int(match[1])) if match else 1

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
        listing = self._ask(["sinfo", "-a", "-h", "-N", "-o", "%N|%P|%a|%l|%c|%G|%T"])
        return [_node(*line.split("|", 6)) for line in listing.splitlines() if line.count("|") >= 6]

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


def _run(command: Sequence[str], env: Mapping[str, str], *, stdin: str = "", timeout_s: float = _TIMEOUT_S) -> str:
    """Return what a command says.

    Raises:
        _RefusedError: it says no.
        TransientError: Slurm did not answer, or this machine has too much to do to ask.
        SetupError: it is not installed or cannot be started, or SLURM_CONF names no file.
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
            timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as exc:
        raise TransientError(f"{command[0]} did not answer within {timeout_s:g} s") from exc
    except OSError as exc:
        if exc.errno in _BUSY:
            raise TransientError(f"{command[0]} cannot be started now: {exc.strerror}") from exc
        advice = "; unset what is long in this command's environment" if exc.errno == errno.E2BIG else ""
        raise SetupError(f"{command[0]} cannot be started: {exc.strerror}{advice}") from exc
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
