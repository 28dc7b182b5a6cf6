"""What a running flow changes of its own record at the server."""

import logging
from collections.abc import Iterable
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from tasks.alerts.task import PREFECT_FAILURES

logger = logging.getLogger(__name__)


def change_run(*, name: str | None = None, tags: Iterable[str] = ()) -> None:
    """Rename the run that is running, or add tags to it. It goes on where the server does not take that."""
    if not flow_run.id:
        return
    wanted = {*flow_run.tags, *tags} if tags else None
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(flow_run.id), name=name, tags=None if wanted is None else sorted(wanted))
    except PREFECT_FAILURES as exc:
        logger.warning("the Prefect server does not take name or tags of this run (%s)", exc)
