"""Drift of the model's outputs: a run against the last one of another checkpoint on the same problems."""

import pyarrow.parquet as pq

from infra.fileroot.earlier_runs import find_siblings, is_sampled_alike, select_earlier
from infra.store import Store, open_store
from schemas.config import EvaluationConfig
from schemas.drift import OutputDrift
from schemas.inference import Plan
from schemas.run import RunIdentity
from schemas.store import PublishedRun
from tasks.drift.outputs import compare_outputs, output_columns
from tasks.inference.runs.record import RunRecord


def compare_with_earlier_run(config: EvaluationConfig, record: RunRecord) -> OutputDrift | None:
    """Return how the merged samples of a run differ from those of the last comparable run; None when there is none.

    Comparable is an earlier run (infra/fileroot/earlier_runs.py) that sampled with the same settings: then what differs
    is the model.

    Raises:
        StoreError: the samples of either cannot be read.
    """
    store = open_store(config.cluster.folder)
    earlier = _find_earlier(store, record.identity, record.plan)
    if earlier is None:
        return None
    columns = output_columns()
    baseline = store.table("samples", run_id=earlier.run_id).to_table(columns=columns)
    features = compare_outputs(baseline, pq.read_table(record.run.samples_path, columns=columns), config=config.drift)
    return OutputDrift(baseline=earlier.run_id, features=features)


def _find_earlier(store: Store, identity: RunIdentity, plan: Plan) -> PublishedRun | None:
    earlier = select_earlier(find_siblings(store, identity, engine=plan.engine), identity)
    return next((run for run in reversed(earlier) if is_sampled_alike(store, run, plan)), None)
