"""What a flow run's log shows of an error: a user's mistake has no traceback, a bug keeps it."""

import logging

import pytest
from prefect.exceptions import ParameterTypeError

from flows.orchestration.run_log import log_errors_by_message, show_by_message
from schemas.errors import CheckpointError, EngineError


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (CheckpointError("100% is\n  - no folder"), "CheckpointError: 100% is\n  - no folder"),
        (EngineError("it died"), "EngineError: it died"),
        (ParameterTypeError("seed: not a number"), "ParameterTypeError: seed: not a number"),
        (ValueError("a bug"), None),
        (KeyError("a bug"), None),
    ],
)
def test_only_a_bug_keeps_its_traceback(error: Exception, shown: str | None) -> None:
    found = (type(error), error, None)
    record = logging.LogRecord("prefect.flow_runs", logging.ERROR, "", 0, "Encountered %r", (error,), found)
    assert show_by_message(record)
    assert record.getMessage() == (f"Encountered {error!r}" if shown is None else shown)
    assert (record.exc_info is None) == (shown is not None)


def test_it_is_told_to_each_logger_once() -> None:
    logger = logging.getLogger("prefect.flow_runs")
    log_errors_by_message()
    log_errors_by_message()
    assert logger.filters.count(show_by_message) == 1
