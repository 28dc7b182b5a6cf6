"""The folder of one run: its file names, its state and its attempts.

{fileroot}/runs/{run_id}/
    run.json  plan.json  config.yaml  prompts.parquet  grades.parquet  samples.parquet  metrics.parquet
    shards.parquet  consistency.parquet  regression.json  degeneration.json  report.html
    attempts/0001/replica-000/   spec.json, work.parquet, segments/, heartbeat.json, result.json
    logs/attempt-0001-replica-000.log
    owners/                      who may change it (infra/ownership/run_ownership.py)
    slurm/                       batch scripts, and what Slurm itself said of each job
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from infra.files.atomic import make_private_root, write_text_atomically
from infra.ownership.run_ownership import RunOwnership
from schemas.errors import StoreError
from schemas.inference import Plan
from schemas.run import RunState

_KEY_LENGTH: Final = 8
"""Hex digits of the plan's key in a run's name: enough to find candidates; run.json decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """Paths and state of one run."""

    path: Path

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self.path.name

    @property
    def plan_path(self) -> Path:
        """The immutable plan."""
        return self.path / "plan.json"

    @property
    def config_path(self) -> Path:
        """The resolved configuration of the latest attempt."""
        return self.path / "config.yaml"

    @property
    def prompts_path(self) -> Path:
        """The rendered prompts, PROMPT_SCHEMA."""
        return self.path / "prompts.parquet"

    @property
    def grades_path(self) -> Path:
        """The grades, GRADE_SCHEMA."""
        return self.path / "grades.parquet"

    @property
    def samples_path(self) -> Path:
        """The merged samples, SAMPLES."""
        return self.path / "samples.parquet"

    @property
    def metrics_path(self) -> Path:
        """The aggregated metrics, METRICS."""
        return self.path / "metrics.parquet"

    @property
    def shards_path(self) -> Path:
        """What each replica did, SHARDS."""
        return self.path / "shards.parquet"

    @property
    def consistency_path(self) -> Path:
        """Whether the replicas agree, CONSISTENCY."""
        return self.path / "consistency.parquet"

    @property
    def regression_path(self) -> Path:
        """How it compares with earlier runs, a RegressionReport."""
        return self.path / "regression.json"

    @property
    def degeneration_path(self) -> Path:
        """Whether its completions are those of a working model, a DegenerationReport."""
        return self.path / "degeneration.json"

    @property
    def page_path(self) -> Path:
        """The page for people."""
        return self.path / "report.html"

    @property
    def attempts_path(self) -> Path:
        """The folder of all attempts."""
        return self.path / "attempts"

    @property
    def slurm_path(self) -> Path:
        """The folder of batch scripts and of Slurm's own words."""
        return self.path / "slurm"

    def replica_dir(self, attempt: int, replica: int) -> Path:
        """Return the folder that one worker owns."""
        return self.attempts_path / f"{attempt:04d}" / f"replica-{replica:03d}"

    def log_path(self, attempt: int, replica: int) -> Path:
        """Return where the worker's stdout and stderr go."""
        return self.path / "logs" / f"attempt-{attempt:04d}-replica-{replica:03d}.log"

    def log_paths(self, replica: int | None = None) -> list[Path]:
        """Return the logs of all workers, or of one replica's, oldest attempt first."""
        pattern = "*" if replica is None else f"{replica:03d}"
        return sorted((self.path / "logs").glob(f"attempt-[0-9]*-replica-{pattern}.log"))

    def replica_dirs(self) -> list[Path]:
        """Return the folders of all workers of all attempts, oldest attempt first."""
        return sorted(self.attempts_path.glob("[0-9]*/replica-[0-9]*"))

    def set_aside(self, attempt: int, replica: int) -> Path:
        """Rename the folder of a worker whose samples are not to be used, and return it.

        Raises:
            StoreError: the file system refuses.
        """
        return self.set_aside_folder(self.replica_dir(attempt, replica))

    def set_aside_folder(self, folder: Path) -> Path:
        """Do the same to the folder of a worker.

        Raises:
            StoreError: the file system refuses.
        """
        aside = folder.with_name(f"quarantined-{folder.name}")
        try:
            folder.replace(aside)
        except OSError as exc:
            raise StoreError(f"cannot rename {folder} to {aside.name}: {exc.strerror}") from exc
        return aside

    def quarantined_dirs(self) -> list[Path]:
        """Return the folders that were set aside, oldest attempt first."""
        return sorted(self.attempts_path.glob("[0-9]*/quarantined-replica-[0-9]*"))

    def read_state(self) -> RunState:
        """Return run.json.

        Raises:
            StoreError: it is absent or not readable as a RunState.
        """
        path = self.path / "run.json"
        try:
            return RunState.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as exc:
            raise StoreError(
                f"{path} cannot be read as the state of a run: {exc}; remove {self.path} to forget it"
            ) from exc

    def write_state(self, state: RunState) -> None:
        """Replace run.json."""
        write_text_atomically(self.path / "run.json", state.model_dump_json(indent=2) + "\n")

    def read_plan(self) -> Plan:
        """Return plan.json.

        Raises:
            StoreError: it is absent or was edited into something that is no plan.
        """
        try:
            return Plan.model_validate_json(self.plan_path.read_bytes())
        except (OSError, ValidationError) as exc:
            raise StoreError(
                f"{self.plan_path} cannot be read as a plan: {exc}; remove {self.path} to start anew"
            ) from exc


def runs_root(fileroot: Path) -> Path:
    """Return the folder of all runs."""
    return fileroot / "runs"


def run_at(fileroot: Path, run_id: str) -> RunDirectory:
    """Return the folder of the run of that name, which may not be there."""
    return RunDirectory(path=runs_root(fileroot) / run_id)


def list_runs(fileroot: Path) -> Iterator[RunDirectory]:
    """Yield the runs whose run.json exists, newest name first."""
    for path in sorted(runs_root(fileroot).glob("*/run.json"), reverse=True):
        yield RunDirectory(path=path.parent)


def create_run(fileroot: Path, plan_key: str, now: datetime) -> tuple[RunDirectory, RunOwnership]:
    """Make the folder of a new run, named by time and plan, and own it; two at once get two folders.

    Raises:
        StoreError: the folder cannot be made.
    """
    stem = f"{now:%Y%m%d-%H%M%S}-{plan_key[:_KEY_LENGTH]}"
    try:
        make_private_root(runs_root(fileroot))
    except OSError as exc:
        raise _cannot_make(runs_root(fileroot), exc) from exc
    for number in range(1, 1000):
        run = run_at(fileroot, stem if number == 1 else f"{stem}-{number}")
        try:
            run.path.mkdir()
        except FileExistsError:
            continue
        except OSError as exc:
            raise _cannot_make(run.path, exc) from exc
        ownership = RunOwnership.acquire(run.path)
        if ownership is not None:
            return run, ownership
    raise StoreError(f"{runs_root(fileroot)} already holds 999 runs named {stem}; wait a second")


def find_resumable(
    fileroot: Path, plan_key: str, experiment_name: str, trial_name: str
) -> tuple[RunDirectory, RunOwnership] | None:
    """Return the newest unfinished run of this plan that no living controller owns, owned now; None without one.

    Waits a minute for a sign of life where the last owner was on another machine.

    Raises:
        StoreError: a run's folder cannot be read or written.
    """
    wanted = (plan_key, experiment_name, trial_name)
    for path in sorted(runs_root(fileroot).glob(f"*-{plan_key[:_KEY_LENGTH]}*/run.json"), reverse=True):
        run = RunDirectory(path=path.parent)
        if not _is_resumable(run, wanted):
            continue
        ownership = RunOwnership.acquire(run.path)
        if ownership is None:
            continue
        if _is_resumable(run, wanted):  # its owner may have finished it meanwhile
            return run, ownership
        ownership.release()
    return None


def _is_resumable(run: RunDirectory, wanted: tuple[str, str, str]) -> bool:
    state = run.read_state()
    return (state.plan_key, state.experiment_name, state.trial_name) == wanted and state.status.is_resumable


def _cannot_make(path: Path, exc: OSError) -> StoreError:
    return StoreError(f"{path} cannot be made: {exc.strerror}; set cluster.fileroot to a writable folder")


def find_run(fileroot: Path, run_id: str) -> RunDirectory:
    """Return the folder of the run of that name.

    Raises:
        StoreError: there is none; the message names the newest ones.
    """
    runs = list(list_runs(fileroot))
    for run in runs:
        if run.run_id == run_id:
            return run
    newest = ", ".join(run.run_id for run in runs[:3]) or "none"
    raise StoreError(f"{runs_root(fileroot)} holds no run {run_id!r}; its newest are: {newest}")


def unfinished_runs(fileroot: Path) -> list[RunState]:
    """Return the states of the runs that no store has yet, newest first.

    Raises:
        StoreError: a run's state cannot be read.
    """
    states = [run.read_state() for run in list_runs(fileroot)]
    return [state for state in states if state.status.is_resumable]
