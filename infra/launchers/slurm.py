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
import threading
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, TypeVar

from infra.files.atomic import make_folder, write_text_atomically
from infra.jobs.base import JobStatus, LaunchSpec
from infra.jobs.environment import DEVICE_NAMES, clean_environment
from infra.slurm.cli import cluster_environment
from infra.slurm.client import SlurmClient
from infra.slurm.queue_watch import QueueWatch
from infra.slurm.script import BatchJob, batch_options, batch_script
from schemas.errors import SetupError, TransientError
from schemas.slurm import SlurmConfig

Answer = TypeVar("Answer")

_PATIENCE_S: Final = 120.0
"""A controller that restarts or fails over answers again within a minute or two."""
_RETRY_S: Final = 5.0
_NAME_LENGTH: Final = 100
logger = logging.getLogger(__name__)


class SlurmLauncher:
    """`infra.jobs.base.Launcher` by a Slurm cluster that shares its file system with this machine."""

    ends_with_controller = False

    def __init__(
        self,
        client: SlurmClient,
        config: SlurmConfig,
        *,
        run_key: str,
        folder: Path,
        stopping: threading.Event | None = None,
    ) -> None:
        """Know the jobs of one run.

        Args:
            client: a way of talking with Slurm.
            config: what is asked of the cluster.
            run_key: any text that names the run.
            folder: where scripts and Slurm's own words go.
            stopping: once set, nothing waits any more for a Slurm that does not answer.
        """
        self._client = client
        self._config = config
        self._folder = folder
        self._name = _job_name(run_key)
        self._stopping = threading.Event() if stopping is None else stopping
        self._watch = QueueWatch(client, self._name, config.poll_interval_s, folder)

    def submit(self, specs: Sequence[LaunchSpec]) -> list[str]:
        """Start jobs and return their ids; all of them or none.

        Neighbours that ask for the same are one array, or several where they are more than the cluster lets one have.

        Raises:
            SetupError: Slurm refuses one, or a program is not there.
            ConfigError: something of it cannot be written into a batch script.
            TransientError: Slurm does not answer, or the run ends meanwhile.
        """
        for spec in specs:
            self._check_program(spec)
        size = self._patiently(self._client.max_array_size) if len(specs) > 1 else 1
        jobs: list[str] = []
        try:
            for _, group in groupby(specs, key=lambda spec: (spec.placement, spec.exclude_nodes)):
                alike = tuple(group)
                for first in range(0, len(alike), size):
                    self._require_going_on()
                    jobs += self._submit_array(alike[first : first + size])
            self._require_going_on()
        except BaseException:
            self._watch.end(jobs)
            raise
        return jobs

    def poll(self, job_id: str) -> JobStatus:
        """Return where the job stood when Slurm was last asked."""
        return self._watch.status(job_id)

    def wait(self, job_id: str, *, timeout_s: float) -> JobStatus:
        """Return once the job is over or the time is up."""
        return self._watch.wait(job_id, timeout_s=timeout_s)

    def cancel(self, job_id: str) -> JobStatus:
        """End the job and return once Slurm says that it is over, or after a minute; it is asked for until it is."""
        self._watch.end([job_id])
        return self.poll(job_id)

    def end_earlier_jobs(self) -> int:
        """Cancel the jobs that an earlier controller of this run left in the queue, and wait a minute for their end.

        Those on a node that does not answer take longer: what they write is an earlier attempt's, and nobody's concern.

        Raises:
            TransientError: Slurm does not answer.
        """
        records = self._patiently(lambda: self._client.jobs(self._name))
        left = [record.job_id for record in records if not record.state.is_terminal]
        if not left:
            return 0
        logger.info("cancelling %d jobs that an earlier attempt left: %s", len(left), ", ".join(left))
        self._watch.add(left)
        lasting = self._watch.end(left)
        if unheard := self._watch.unheard():
            raise TransientError(
                f"Slurm does not cancel jobs of an earlier attempt: {', '.join(unheard)}; see `squeue`"
            )
        if lasting:
            logger.warning("jobs of an earlier attempt are cancelled and not over yet: %s", ", ".join(lasting))
        return len(left)

    def close(self) -> None:
        """End the jobs that are not over; say which could not be."""
        self._watch.end(self._watch.unfinished())
        if unheard := self._watch.unheard():
            logger.warning(
                "Slurm could not be asked to end %s: `scancel` them once it answers; a worker ends itself when its "
                "controller has been gone for a minute", ", ".join(unheard),
            )  # fmt: skip
        self._watch.stop()

    def _require_going_on(self) -> None:
        """Whoever stops the run may have ended its jobs already: it cannot know of those that are submitted now."""
        if self._stopping.is_set():
            raise TransientError("the run ended while its jobs were submitted: they are cancelled")

    def _submit_array(self, specs: tuple[LaunchSpec, ...]) -> list[str]:
        make_folder(self._folder)
        comment = f"{_plain(specs[0].key)} +{len(specs) - 1} {secrets.token_hex(6)}"
        job = BatchJob(name=self._name, comment=comment, elements=specs, config=self._config)
        script = self._folder / f"{comment.rpartition(' ')[2]}.sh"
        write_text_atomically(script, batch_script(job))
        array = self._submit_once(script, comment)
        jobs = [f"{array}_{element}" for element in range(len(specs))]
        self._watch.add(jobs, logs={job: spec.log_path for job, spec in zip(jobs, specs, strict=True)})
        return jobs

    def _submit_once(self, script: Path, comment: str) -> str:
        """Submit a script and return its array's number; one that reached Slurm without an answer is found again.

        It may reach it after it was looked for: whatever else has the comment is ended when it is seen.
        """
        env = {name: value for name, value in clean_environment(os.environ).items() if name not in DEVICE_NAMES}
        env |= cluster_environment() | self._config.env
        num_tries = 0

        def submit_or_find() -> str:
            nonlocal num_tries
            num_tries += 1
            found = self._find_array(comment) if num_tries > 1 else None
            return found or self._client.submit(script, batch_options(self._folder), env)

        try:
            try:
                array = self._patiently(submit_or_find)
            except TransientError:
                found = None if self._stopping.is_set() else self._find_array(comment)
                if found is None:
                    raise
                array = found
        except BaseException as exc:
            if num_tries > 1 or not isinstance(exc, SetupError):
                self._watch.keep_only(None, comment)
            raise
        if num_tries > 1:
            self._watch.keep_only(array, comment)
        return array

    def _find_array(self, comment: str) -> str | None:
        found = [job.job_id for job in self._client.jobs(self._name) if job.comment == comment]
        return found[0].partition("_")[0] if found else None

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        """Return an answer of Slurm; where it gives none, ask again until that takes too long or the run ends."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return ask()
            except TransientError as exc:
                if time.monotonic() > deadline or self._stopping.is_set():
                    raise
                logger.warning("%s; trying again", exc)
                self._stopping.wait(_RETRY_S)

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
