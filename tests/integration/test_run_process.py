"""The worker of a deployment's run imports its engine while its controller imports Prefect."""

from datetime import datetime

import psutil
import pytest

from tests.support.prefect_server import CONFIG, FINAL, Served, wait_for

pytestmark = [pytest.mark.needs_engine, pytest.mark.needs_prefect, pytest.mark.timeout(1800)]


def test_a_run_takes_the_worker_that_was_started_before_it(served: Served) -> None:
    # it is let be where the server is slow to say what the run is about
    assert any(takes_the_worker_before_it(served) for _ in range(3))


def takes_the_worker_before_it(served: Served) -> bool:
    """Whether the only worker of a run was started before the run."""
    run = served.start("evaluate", config=CONFIG | {"engine": {"stand_in": {"step_s": 0.2}}})
    workers: set[psutil.Process] = set()

    def is_over() -> bool:
        workers.update(served.workers())
        return served.state(run)["type"] in FINAL

    wait_for(is_over, f"end of run {run}")
    found = served.ask(f"flow_runs/{run}", method="GET")
    assert found["state_type"] == "COMPLETED"
    started = datetime.fromisoformat(found["start_time"]).timestamp()
    return [worker.create_time() < started for worker in workers] == [True]  # one that is not taken makes two
