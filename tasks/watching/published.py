"""What has been evaluated, or is being, whoever did it: told from the store and the runs themselves.

A record that was lost, a watcher that died between publication and its note, an evaluation that somebody made by hand:
the published run tells of each.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as pads

from infra.run_directory import RunDirectory, run_at, unfinished_runs
from infra.run_ownership import is_owned
from infra.store import open_store
from schemas.config import load_config
from schemas.errors import MilepostError
from tasks.inference.worker_files import read_heartbeat
from tasks.watching.evaluation_key import evaluation_key


def find_published(fileroot: Path, *, weight_digest: str, key: str) -> str | None:
    """Return the newest published run of these weights whose configuration has this key; None without one.

    Raises:
        StoreError: the store cannot be read.
    """
    runs = open_store(fileroot).table("runs")
    matching = runs.to_table(
        columns=["run_id"], filter=(pads.field("weight_digest") == weight_digest) & pads.field("regrade_of").is_null()
    )
    run_ids = sorted(map(str, matching.column("run_id").to_pylist()), reverse=True)
    return next((name for name in run_ids if _key_of(run_at(fileroot, name)) == key), None)


def is_being_made(fileroot: Path, *, weight_digest: str, key: str, stopping: threading.Event) -> bool:
    """Whether a living process is at a run of these weights and this key.

    Waits a minute for a sign of life where such a run was last owned on another machine; a wait that `stopping` ends
    counts as one.

    Raises:
        StoreError: a run cannot be read.
    """
    return any(
        _key_of(run) == key and is_owned(run.path, stopping=stopping) for run in _unfinished(fileroot, weight_digest)
    )


def num_finished(fileroot: Path, *, weight_digest: str, key: str) -> int:
    """Return the finished samples of the unfinished run of these weights and this key, by its workers' heartbeats.

    Raises:
        StoreError: a run cannot be read.
    """
    runs = (run for run in _unfinished(fileroot, weight_digest) if _key_of(run) == key)
    return sum(_num_done(folder) for run in runs for folder in run.replica_dirs())


def _unfinished(fileroot: Path, weight_digest: str) -> Iterator[RunDirectory]:
    for state in unfinished_runs(fileroot):
        run = run_at(fileroot, state.run_id)
        try:
            if run.read_plan().weight_digest == weight_digest:
                yield run
        except MilepostError:
            continue  # one that was killed before it had a plan


def _num_done(worker_folder: Path) -> int:
    heartbeat = read_heartbeat(worker_folder)
    return 0 if heartbeat is None else heartbeat.num_done


def _key_of(run: RunDirectory) -> str | None:
    """Return the key of a run's configuration; None when it is gone or of a version that cannot be read."""
    try:
        return evaluation_key(load_config(run.config_path))
    except MilepostError:
        return None
