"""Jobs of a Slurm cluster: one array element per replica, one look at the queue for all of them.

Slurm never restarts a job of ours; whoever uses the launcher decides what to do about one that ended. A question to
Slurm that fails leaves every job where it was last seen.
"""

import hashlib
import logging
import os
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from infra.atomic import make_folder, write_text_atomically
from infra.launchers.base import JobStatus, LaunchSpec
from infra.launchers.environment import clean_environment
from infra.slurm.cli import cluster_environment
from infra.slurm.client import SlurmClient
from infra.slurm.queue_watch import QueueWatch
from infra.slurm.script import BatchJob, batch_options, batch_script
from schemas.errors import MilepostError, SetupError, TransientError
from schemas.slurm import SlurmConfig

_SUBMIT_PATIENCE_S: Final = 120.0
"""A controller that restarts or fails over answers again within a minute or two."""
_RETRY_S: Final = 5.0
_END_S: Final = 120.0
"""KillWait is 30 s by default, a node's clean-up takes as long again."""
_NAME_LENGTH: Final = 100
logger = logging.getLogger(__name__)


class SlurmLauncher:
    """`infra.launchers.base.Launcher` by a Slurm cluster that shares its file system with this machine."""

    ends_with_controller = False

    def __init__(self, client: SlurmClient, config: SlurmConfig, *, run_key: str, folder: Path) -> None:
        """`run_key`: any text that names the run; `folder`: where scripts and Slurm's own words go."""
        self._client = client
        self._config = config
        self._folder = folder
        self._name = _job_name(run_key)
        self._watch = QueueWatch(client, self._name, config.poll_interval_s, folder)

    def submit(self, specs: Sequence[LaunchSpec]) -> list[str]:
        """Start jobs, neighbours that ask for the same as one array, and return their ids; all of them or none.

        Raises:
            SetupError: Slurm refuses one, or a program is not there.
            ConfigError: something of it cannot be written into a batch script.
            TransientError: Slurm does not answer.
        """
        for spec in specs:
            self._check_program(spec)
        jobs: list[str] = []
        try:
            for _, group in groupby(specs, key=lambda spec: (spec.placement, spec.exclude_nodes)):
                jobs += self._submit_array(tuple(group))
        except MilepostError:
            self._end(jobs)
            raise
        return jobs

    def poll(self, job_id: str) -> JobStatus:
        """Return where the job stood when Slurm was last asked."""
        return self._watch.status(job_id)

    def wait(self, job_id: str, *, timeout_s: float) -> JobStatus:
        """Return once the job is over or the time is up."""
        return self._watch.wait(job_id, timeout_s=timeout_s)

    def cancel(self, job_id: str) -> JobStatus:
        """End the job and return once Slurm says that it is over, or after two minutes."""
        self._end([job_id])
        return self.poll(job_id)

    def end_earlier_jobs(self) -> int:
        """Cancel the jobs that an earlier controller of this run left in the queue, and wait for their end.

        Raises:
            TransientError: Slurm does not answer, or they do not end.
        """
        left = [job.job_id for job in self._client.jobs(self._name) if not job.state.is_terminal]
        if not left:
            return 0
        logger.info("cancelling %d jobs that an earlier attempt left: %s", len(left), ", ".join(left))
        self._watch.add(left)
        self._end(left)
        if lasting := [job for job in left if not self.poll(job).state.is_terminal]:
            raise TransientError(f"jobs of an earlier attempt do not end: {', '.join(lasting)}; see `squeue -j`")
        return len(left)

    def close(self) -> None:
        """End the jobs that are not over."""
        self._end(self._watch.unfinished())
        self._watch.stop()

    def _end(self, jobs: Sequence[str]) -> None:
        """Cancel jobs and wait for their end; a controller of Slurm that is away is asked again."""
        deadline = time.monotonic() + _END_S
        unfinished = [job for job in jobs if not self.poll(job).state.is_terminal]
        is_told = not unfinished
        while not is_told and time.monotonic() < deadline:
            try:
                self._client.cancel(unfinished)
                is_told = True
            except TransientError as exc:
                logger.warning("%s; trying again", exc)
                time.sleep(_RETRY_S)
        self._watch.hurry()
        for job in unfinished:
            self.wait(job, timeout_s=max(0.0, deadline - time.monotonic()))

    def _submit_array(self, specs: tuple[LaunchSpec, ...]) -> list[str]:
        make_folder(self._folder)
        comment = f"{_plain(specs[0].key)} +{len(specs) - 1} {secrets.token_hex(6)}"
        job = BatchJob(name=self._name, comment=comment, elements=specs, config=self._config)
        script = self._folder / f"{comment.rpartition(' ')[2]}.sh"
        write_text_atomically(script, batch_script(job))
        array = self._submit_once(script, comment)
        jobs = [f"{array}_{element}" for element in range(len(specs))]
        self._watch.add(jobs, logs=[spec.log_path for spec in specs])
        return jobs

    def _submit_once(self, script: Path, comment: str) -> str:
        """Submit a script and return its array's number; one that reached Slurm without an answer is found again."""
        env = clean_environment(os.environ) | cluster_environment() | self._config.env
        env.pop("CUDA_VISIBLE_DEVICES", None)
        deadline = time.monotonic() + _SUBMIT_PATIENCE_S
        while True:
            try:
                return self._client.submit(script, batch_options(self._folder), env)
            except TransientError as exc:
                if time.monotonic() > deadline:
                    raise
                logger.warning("%s; trying again", exc)
            time.sleep(_RETRY_S)
            try:
                found = [job for job in self._client.jobs(self._name) if job.comment == comment]
            except TransientError:
                continue
            if found:
                return found[0].job_id.partition("_")[0]

    def _check_program(self, spec: LaunchSpec) -> None:
        program = shlex.split(self._config.container)[0] if self._config.container else spec.argv[0]
        if shutil.which(program) is None:
            raise SetupError(
                f"{spec.key}: {program!r} is no program on this machine, whose files the cluster's nodes share: set "
                "engine.python, or scheduler.slurm.container, to one that they have"
            )


def _plain(text: str) -> str:
    """Return a name for people that every command of Slurm takes as one word."""
    return re.sub(r"[^A-Za-z0-9._/+-]", "_", text)[:_NAME_LENGTH]


def _job_name(run_key: str) -> str:
    """Return the name of a run's jobs; the digest keeps runs apart whose keys look alike once made plain."""
    digest = hashlib.blake2b(run_key.encode(), digest_size=4).hexdigest()
    return f"milepost-{_plain(run_key).rpartition('/')[2]}-{digest}"
