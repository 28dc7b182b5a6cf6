"""Drift of the model's outputs: a run against the last one of another checkpoint on the same problems."""

import pyarrow.parquet as pq

from infra.run_directory import RunDirectory, runs_root
from infra.store import Store, open_store
from schemas.config import EvaluationConfig
from schemas.drift import OutputDrift
from schemas.errors import StoreError
from schemas.inference import Plan
from schemas.run import RunIdentity
from schemas.store import PublishedRun
from tasks.drift.outputs import compare_outputs, output_columns
from tasks.inference.session import RunSession


def compare_with_earlier_run(config: EvaluationConfig, session: RunSession) -> OutputDrift | None:
    """Return how the merged samples of a run differ from those of the last comparable run; None when there is none.

    Comparable is a run of the same experiment, trial and dataset version, of other weights, that sampled with the same
    settings: then what differs is the model.

    Raises:
        StoreError: the samples of either cannot be read.
    """
    store = open_store(config.cluster.fileroot)
    earlier = _find_earlier(store, session.identity, session.plan)
    if earlier is None:
        return None
    columns = output_columns()
    baseline = store.table("samples", run_id=earlier.run_id).to_table(columns=columns)
    features = compare_outputs(baseline, pq.read_table(session.run.samples_path, columns=columns), config=config.drift)
    return OutputDrift(baseline=earlier.run_id, features=features)


def _find_earlier(store: Store, identity: RunIdentity, plan: Plan) -> PublishedRun | None:
    names = ("experiment_name", "trial_name", "dataset", "dataset_version")
    for run in store.runs():
        is_alike = all(getattr(run, name) == getattr(identity, name) for name in names)
        if is_alike and run.weight_digest != identity.weight_digest and _samples_alike(store, run, plan):
            return run
    return None


def _samples_alike(store: Store, run: PublishedRun, plan: Plan) -> bool:
    """Whether a run sampled as `plan` does; one whose folder is gone is not known to."""
    try:
        earlier = RunDirectory(path=runs_root(store.root.parent) / run.run_id).read_plan()
    except StoreError:
        return False
    return (earlier.sampling, earlier.engine, earlier.dtype) == (plan.sampling, plan.engine, plan.dtype)
