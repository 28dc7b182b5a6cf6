"""What has been evaluated, or is being, whoever did it: told from the store and the runs themselves.

A record that was lost, a watcher that died between publication and its note, an evaluation that somebody made by hand:
the published run tells of each.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as pads

from infra.fileroot.run_directory import RunDirectory, run_at, unfinished_runs
from infra.ownership.run_ownership import is_owned
from infra.store import open_store
from schemas.checkpoint import CheckpointIdentity
from schemas.config import EvaluationConfig, load_config
from schemas.errors import MilepostError
from tasks.inference.exchange.worker_files import read_heartbeat
from tasks.watching.evaluation_key import evaluation_key


class EvaluatedModel(NamedTuple):
    """Which model's runs are looked for."""

    weight_digest: str
    """Of its weights: finds candidates without reading their plans."""
    model_key: str
    """As in LandedCheckpoint; equal to the former, where an earlier version went by the weights alone."""


def find_published(
    fileroot: Path, model: EvaluatedModel, *, key: str, dataset_version: str | None = None
) -> str | None:
    """Return the newest published run of a model whose configuration has this key; None without one.

    `dataset_version`: version of the rows that it was made on; None for any.

    Raises:
        StoreError: the store cannot be read.
    """
    wanted = (pads.field("weight_digest") == model.weight_digest) & pads.field("regrade_of").is_null()
    if dataset_version is not None:
        wanted &= pads.field("dataset_version") == dataset_version
    matching = open_store(fileroot).table("runs").to_table(columns=["run_id"], filter=wanted)
    run_ids = sorted(map(str, matching.column("run_id").to_pylist()), reverse=True)
    runs_of_weights = (run_at(fileroot, name) for name in run_ids)
    return next((run.run_id for run in runs_of_weights if _key_of(run) == key and _is_made_by(model, run)), None)


def find_repetition(config: EvaluationConfig, identity: CheckpointIdentity, *, dataset_version: str) -> str | None:
    """Return the published run that an evaluation would repeat: same model, rows and settings; None without one.

    Raises:
        StoreError: the store cannot be read.
    """
    model = EvaluatedModel(identity.weight_digest, identity.digest)
    key = evaluation_key(config)
    return find_published(config.cluster.folder, model, key=key, dataset_version=dataset_version)


def is_being_made(fileroot: Path, model: EvaluatedModel, *, key: str, stopping: threading.Event) -> bool:
    """Whether a living process is at a run of this model and this key.

    Waits a minute for a sign of life where such a run was last owned on another machine; a wait that `stopping` ends
    counts as one.

    Raises:
        StoreError: a run cannot be read.
    """
    return any(_key_of(run) == key and is_owned(run.path, stopping=stopping) for run in _unfinished(fileroot, model))


def num_finished(fileroot: Path, model: EvaluatedModel, *, key: str) -> int:
    """Return the finished samples of the unfinished run of this model and this key, by its workers' heartbeats.

    Raises:
        StoreError: a run cannot be read.
    """
    runs = (run for run in _unfinished(fileroot, model) if _key_of(run) == key)
    return sum(_num_done(folder) for run in runs for folder in run.replica_dirs())


def _unfinished(fileroot: Path, model: EvaluatedModel) -> Iterator[RunDirectory]:
    runs = (run_at(fileroot, state.run_id) for state in unfinished_runs(fileroot))
    return (run for run in runs if _is_made_by(model, run))


def _is_made_by(model: EvaluatedModel, run: RunDirectory) -> bool:
    """Whether a run is of this model; not so when it was killed before it had a plan."""
    try:
        plan = run.read_plan()
    except MilepostError:
        return False
    return plan.weight_digest == model.weight_digest and model.model_key in (plan.weight_digest, plan.identity.digest)


def _num_done(worker_folder: Path) -> int:
    heartbeat = read_heartbeat(worker_folder)
    return 0 if heartbeat is None else heartbeat.num_done


def _key_of(run: RunDirectory) -> str | None:
    """Return the key of a run's configuration; None when it is gone or of a version that cannot be read."""
    try:
        return evaluation_key(load_config(run.config_path))
    except MilepostError:
        return None
