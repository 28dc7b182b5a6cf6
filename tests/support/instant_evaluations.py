"""Evaluations that are published at once, through the real run folders and the real store, for tests of the watcher."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.checkpoints import inspect_checkpoint
from infra.fileroot.run_directory import RunDirectory, create_run, find_resumable
from infra.files.atomic import write_text_atomically
from infra.ownership.run_ownership import RunOwnership
from infra.store import open_store
from schemas.checkpoint import CheckpointIdentity
from schemas.config import EvaluationConfig, config_to_yaml, load_config
from schemas.errors import EngineError, TransientError
from schemas.inference import Plan
from schemas.run import RunState
from schemas.sampling import SamplingSpec
from schemas.states import RunStatus
from tasks.checkpoint.resolution import identify_checkpoint
from tasks.watching.launching import EndCause, EvaluationEnd, EvaluationOrder
from tests.support.store_tables import run_tables

CONFIG = """
experiment_name: watched
engine: {stand_in: {}}
valid_dataset: {path: "reasoning_gym:chain_sum?size=5&seed=1"}
actor: {path: checkpoint}
"""


def make_config(folder: Path, *overrides: str) -> EvaluationConfig:
    """A configuration whose fileroot is in `folder`."""
    path = folder / "config.yaml"
    path.write_text(CONFIG)
    quick = ("watch.poll_s=0.05", "watch.settle_s=0", "watch.retry_after_s=0")
    return load_config(path, [f"cluster.fileroot={folder / 'out'}", *quick, *overrides])


def published_runs(config: EvaluationConfig) -> list[dict[str, Any]]:
    """What the store holds, one row per run."""
    columns = ["run_id", "checkpoint", "weight_digest", "global_step"]
    return open_store(config.cluster.folder).table("runs").to_table(columns=columns).to_pylist()


class InstantLauncher:
    """Evaluates in its own process, which can die in the middle, and resumes what it had left then."""

    def __init__(
        self,
        *,
        duration_s: float = 0.0,
        fails: Callable[[EvaluationOrder], bool] = lambda _order: False,
        cause: EndCause = "failed",
        error: str = "made to fail",
    ):
        self.cause: EndCause = cause
        self.error = error
        self.hindrance = ""
        self.num_refused = 0
        self.orders: list[EvaluationOrder] = []
        self.num_running = self.most_running = 0
        self._duration_s = duration_s
        self._fails = fails

    def launch(self, order: EvaluationOrder) -> "InstantEvaluation":
        if self.hindrance:
            self.num_refused += 1
            raise TransientError(self.hindrance)
        self.orders.append(order)
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        return InstantEvaluation(self, order, self._duration_s, fails=self._fails(order))


class InstantEvaluation:
    """One of them."""

    def __init__(self, launcher: InstantLauncher, order: EvaluationOrder, duration_s: float, *, fails: bool) -> None:
        self._launcher = launcher
        self._order = order
        self._ends_at = time.monotonic() + duration_s
        self._fails = fails
        self._is_stopped = False

    def poll(self) -> EvaluationEnd | None:
        if self._is_stopped:
            return EvaluationEnd(error="stopped")
        if time.monotonic() < self._ends_at:
            return None
        self._launcher.num_running -= 1
        if self._fails:
            return EvaluationEnd(error=self._launcher.error, cause=self._launcher.cause)
        publish(self._order)
        return EvaluationEnd(error="")

    def stop(self) -> bool:
        self._is_stopped = True
        return True


class OutlivingLauncher:
    """Has runs made that go on after their watcher, as a deployment does."""

    def __init__(self) -> None:
        self.ownerships: list[RunOwnership] = []

    def launch(self, order: EvaluationOrder) -> "OutlivingEvaluation":
        self.ownerships.append(begin(order)[1])
        return OutlivingEvaluation()


class OutlivingEvaluation:
    """One of them."""

    def poll(self) -> None:
        return None

    def stop(self) -> bool:
        return False


def begin(order: EvaluationOrder) -> tuple[RunDirectory, RunOwnership, RunState]:
    """Make the run of an order, or resume it."""
    config = order.config
    fileroot, folder = config.cluster.folder, Path(config.actor.pinned_path or "")
    report = inspect_checkpoint(folder)
    if report.status != "complete":
        raise EngineError(f"{folder} cannot be evaluated: {report.problems}")
    plan = _plan(identify_checkpoint(report))
    found = find_resumable(fileroot, plan.plan_key, config.experiment_name, config.trial_name)
    run, ownership = found or create_run(fileroot, plan.plan_key, datetime.now(UTC))
    state = RunState(
        run_id=run.run_id,
        plan_key=plan.plan_key,
        experiment_name=config.experiment_name,
        trial_name=config.trial_name,
        checkpoint=config.actor.path,
        global_step=None,
        status=RunStatus.RUNNING,
        started_at=datetime.now(UTC),
    )
    run.write_state(state)
    _write_files(run, plan, config)
    return run, ownership, state


def publish(order: EvaluationOrder) -> None:
    """Make the run of an order, or resume it, and publish it."""
    run, ownership, state = begin(order)
    config, fileroot, plan = order.config, order.config.cluster.folder, run.read_plan()
    names: dict[str, Any] = {"checkpoint": config.actor.path, "weight_digest": plan.weight_digest, "regrade_of": None}
    open_store(fileroot).publish(
        run.run_id, config.experiment_name, run_tables(run.run_id, config.experiment_name, **names)
    )
    run.write_state(state.model_copy(update={"status": RunStatus.COMPLETED}))
    ownership.release()


def _write_files(run: RunDirectory, plan: Plan, config: EvaluationConfig) -> None:
    write_text_atomically(run.plan_path, plan.model_dump_json())
    write_text_atomically(run.config_path, config_to_yaml(config))


def _plan(identity: CheckpointIdentity) -> Plan:
    sampling = SamplingSpec(
        temperature=0.0, top_p=1.0, top_k=-1, max_new_tokens=1, min_new_tokens=0, stop=(), eos_token_ids=()
    )
    return Plan(
        plan_key=identity.digest,
        seed=1,
        n_samples=1,
        engine="stand_in",
        dtype="float32",
        **identity.model_dump(),
        dataset="d",
        dataset_version="v",
        sampling=sampling,
        max_model_len=8,
        items=(),
    )


_CHANGES = ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.symlink")


def die_at(number: int, below: Path) -> Callable[[str, tuple[object, ...]], None]:
    """An audit hook that ends the process before its `number`-th change of anything below a folder."""
    count = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        is_change = event in _CHANGES
        if event == "open":
            is_change = isinstance(arguments[1], str) and bool(set(arguments[1]) & set("wxa+"))
        if is_change and any(str(each).startswith(str(below)) for each in arguments):
            count += 1
            if count >= number:
                os._exit(9)

    return hook
