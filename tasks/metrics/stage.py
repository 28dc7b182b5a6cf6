"""Aggregate the merged samples of a run into its metrics file."""

import pyarrow.dataset as pads

from infra.fileroot.run_directory import RunDirectory
from infra.files.atomic import write_table_atomically
from schemas.sections import MetricsConfig
from schemas.tables import SAMPLES
from tasks.metrics.aggregation import aggregate
from tasks.metrics.scored import check_scores


def aggregate_run(run: RunDirectory, config: MetricsConfig) -> None:
    """Write metrics.parquet from samples.parquet.

    Raises:
        ScoringError: too little of it has a score; nothing is written.
        StoreError: a file cannot be read or written.
    """
    samples = pads.dataset(run.samples_path, schema=SAMPLES, format="parquet")
    check_scores(samples, run_id=run.run_id)
    write_table_atomically(run.metrics_path, aggregate(samples, config=config))
