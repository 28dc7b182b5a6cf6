"""How a flow run's log shows the error that ended it: a user's mistake by its message, a bug by its traceback."""

import logging
from typing import Final

from prefect.exceptions import ParameterTypeError

from schemas.errors import MilepostError

_LOGGERS: Final = ("prefect.task_runs", "prefect.flow_runs", "prefect.engine")
"""Where Prefect logs one exception after another: of the task, of the flow around it, of the process."""


def log_errors_by_message() -> None:
    """Have Prefect log an error that is raised on purpose without its traceback; calling it twice changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(show_by_message)


def show_by_message(record: logging.LogRecord) -> bool:
    """Replace record and traceback of an expected error by its type and message; let every record pass."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, MilepostError | ParameterTypeError):
        record.msg, record.args, record.exc_info = f"{type(error).__name__}: {error}", (), None
    return True
