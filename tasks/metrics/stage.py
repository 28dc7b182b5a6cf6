"""Aggregate the merged samples of a run into its metrics file."""

import pyarrow.dataset as pads

from infra.atomic import write_table_atomically
from infra.run_directory import RunDirectory
from schemas.sections import MetricsConfig
from schemas.tables import SAMPLES
from tasks.metrics.aggregation import aggregate


def aggregate_run(run: RunDirectory, config: MetricsConfig) -> None:
    """Write metrics.parquet from samples.parquet.

    Raises:
        StoreError: a file cannot be read or written.
    """
    samples = pads.dataset(run.samples_path, schema=SAMPLES, format="parquet")
    write_table_atomically(run.metrics_path, aggregate(samples, config=config))
