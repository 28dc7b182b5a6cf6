"""The drift rule as an expectation of great-expectations, so that contract and drift are one suite with one result.

Imported only in the process that validates: great-expectations takes seconds and 233 MB to import.
"""

from typing import ClassVar, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

from schemas.drift import DriftConfig, DriftOutcome
from schemas.errors import UserInputError
from tasks.drift.detector import detect_drift
from tasks.drift.features import COLUMNS, SUBSET

_METRIC: Final = "milepost.drift"


class DriftMetric(TableMetricProvider):
    """A DriftOutcome of the batch, as JSON."""

    metric_name = _METRIC
    value_keys = ("reference", "config")

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805 - the decorator makes it a class method
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, object],
        metric_value_kwargs: dict[str, str],
        metrics: object,
        runtime_configuration: object,
    ) -> str:
        del metrics, runtime_configuration
        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        return _compare(frame, **metric_value_kwargs).model_dump_json()


class ExpectNoDrift(BatchExpectation):
    """Expect the rows to be like those of a reference in every feature that both have."""

    reference: str
    """Parquet file of the reference."""
    config: str
    """DriftConfig as JSON."""

    metric_dependencies: ClassVar = (_METRIC,)
    success_keys: ClassVar = ("reference", "config")
    args_keys: ClassVar = ("reference", "config")

    def _validate(
        self,
        metrics: dict[str, str],
        runtime_configuration: object = None,
        execution_engine: object = None,
    ) -> dict[str, object]:
        del runtime_configuration, execution_engine
        outcome = DriftOutcome.model_validate_json(metrics[_METRIC])
        holds = outcome.report is not None and not outcome.report.drifted
        return {"success": holds, "result": {"observed_value": metrics[_METRIC]}}


def _compare(frame: pd.DataFrame, *, reference: str, config: str) -> DriftOutcome:
    columns = [name for name in frame.columns if name in COLUMNS or name.startswith(SUBSET)]
    current = pa.Table.from_pandas(frame.filter(items=columns), preserve_index=False)
    settings = DriftConfig.model_validate_json(config)
    try:
        return DriftOutcome(report=detect_drift(pq.read_table(reference), current, config=settings))
    except UserInputError as exc:  # great-expectations would bury it in a traceback
        return DriftOutcome(error=str(exc))
