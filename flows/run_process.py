"""The process of a deployment's run; the workers of an evaluation import their engine while it imports Prefect.

A process worker runs it in the place of `python -m prefect.engine`, which it is once the workers are started.
"""

import os
import runpy
from contextlib import suppress
from typing import Final

ENGINE: Final = "prefect.engine"
"""Prefect's program for one run, whose id stands in the environment."""
_PARAMETERS: Final = frozenset({"config", "checkpoint_path", "repeat"})
"""Parameters of the flow `evaluate`."""


def main() -> None:
    """Start the workers, then do the run."""
    with suppress(Exception):  # whatever is wrong with the run, its flow meets and tells
        start_workers_ahead(os.environ["PREFECT__FLOW_RUN_ID"])
    runpy.run_module(ENGINE, run_name="__main__", alter_sys=True)


def start_workers_ahead(run_id: str) -> None:
    """Start the workers that a run of the flow `evaluate` will want on this machine."""
    from infra.prefect_server.http_api import find_api, read_run_parameters
    from schemas.config import EvaluationConfig
    from tasks.inference.planning.layout import check_layout
    from tasks.inference.replicas.prewarm import start_workers

    api = find_api()
    if api is None:
        return
    parameters = read_run_parameters(api, run_id)
    if not parameters.keys() <= _PARAMETERS or parameters.get("repeat") is False:  # it may generate nothing
        return
    path = parameters.get("checkpoint_path")
    config = EvaluationConfig.model_validate(parameters["config"]).at_checkpoint(None if path is None else str(path))
    check_layout(config)
    start_workers(config)


if __name__ == "__main__":
    main()
