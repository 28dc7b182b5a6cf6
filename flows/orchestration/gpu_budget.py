"""The GPU budget: a global concurrency limit of the Prefect server, of which an evaluation holds a slot per GPU.

It holds for everybody who uses that server: watchers, deployments, commands. The slots are lent: a process that is
killed renews them no more, and the server has them back when the time is up.
"""

import logging
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, GlobalConcurrencyLimitUpdate
from prefect.client.schemas.responses import GlobalConcurrencyLimitResponse
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL

from infra.prefect_server.ephemeral_servers import is_own_server
from schemas.config import EvaluationConfig
from schemas.deployment import Change, Registration
from schemas.errors import LaunchError
from tasks.alerts.task import PREFECT_FAILURES

GPU_LIMIT: Final = "milepost-gpus"
_LEASE_S: Final = 120.0
"""Time after which slots that nobody renews are free again; the server looks every 15 s."""
_RENEWALS_PER_LEASE: Final = 4
_ASK_S: Final = 3.0

logger = logging.getLogger(__name__)


def num_gpus(config: EvaluationConfig) -> int:
    """Return the slots that an evaluation takes: all GPUs of all replicas, of whatever the backend's machines have."""
    return config.backend.data_parallel * config.backend.gpus_per_replica


def check_budget(config: EvaluationConfig) -> None:
    """Return unless the evaluation needs more than there will ever be.

    Raises:
        LaunchError: it does.
    """
    limit = _read_limit()
    if limit is not None and num_gpus(config) > limit.limit:
        raise _too_large(config, str(limit.limit))


@contextmanager
def gpus_held(config: EvaluationConfig, stopping: threading.Event, *, lease_s: float = _LEASE_S) -> Generator[None]:
    """Hold the evaluation's share of the budget while the block runs; wait for it until `stopping` is set.

    Without a budget this is one question to the server, and without a server nothing.

    Args:
        config: The evaluation.
        stopping: Set when the evaluation ends before it has its share.
        lease_s: Time after which the server frees the share of a process that was killed, seconds.

    Raises:
        LaunchError: the budget was made smaller than what the evaluation needs.
    """
    if _read_limit() is None:
        yield
        return
    share = _Share(num_gpus(config), lease_s)
    _wait_for_share(share, config, stopping)
    ended = threading.Event()
    thread = threading.Thread(target=share.keep, args=(ended,), name="gpu-budget", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        share.give_back()


def ensure_budget(client: SyncPrefectClient, gpus: int) -> list[Registration]:
    """Make the server's budget so many GPUs; 0 removes it."""
    held = _read_by_name(client)
    if gpus == 0:
        if held is None:
            return []
        client.delete_global_concurrency_limit_by_name(GPU_LIMIT)
        return [Registration(kind="GPU budget", name=GPU_LIMIT, id=str(held.id), change="removed")]
    if held is None:
        made = client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=GPU_LIMIT, limit=gpus))
        return [Registration(kind="GPU budget", name=GPU_LIMIT, id=str(made), change="created")]
    change: Change = "unchanged"
    if held.limit != gpus:
        client.update_global_concurrency_limit(GPU_LIMIT, GlobalConcurrencyLimitUpdate(limit=gpus))
        change = "updated"
    return [Registration(kind="GPU budget", name=GPU_LIMIT, id=str(held.id), change=change)]


class _Share:
    """Slots of the budget, lent to this process."""

    def __init__(self, num_slots: int, lease_s: float) -> None:
        self._num_slots = num_slots
        self._lease_s = lease_s
        self._lease: UUID | None = None

    def take(self, client: SyncPrefectClient) -> bool:
        """Take the slots; False while others have them.

        Raises:
            httpx.HTTPError: the server is out of reach, or refuses for another reason.
        """
        try:
            reply = client.increment_concurrency_slots_with_lease(
                [GPU_LIMIT], self._num_slots, "concurrency", self._lease_s
            )
        except httpx.HTTPStatusError as exc:
            if exc.response.status_code == HTTPStatus.LOCKED:
                return False
            raise
        self._lease = UUID(reply.json()["lease_id"])
        return True

    def keep(self, ended: threading.Event) -> None:
        """Renew the loan until `ended`. A server that comes back after the time was up is asked for another one."""
        while not ended.wait(self._lease_s / _RENEWALS_PER_LEASE):
            with suppress(*PREFECT_FAILURES), get_client(sync_client=True) as client:
                self._renew(client)

    def _renew(self, client: SyncPrefectClient) -> None:
        if self._lease is None:
            self.take(client)
            return
        try:
            client.renew_concurrency_lease(self._lease, self._lease_s)
        except httpx.HTTPStatusError as exc:
            if exc.response.status_code == HTTPStatus.GONE:
                self._lease = None
                logger.warning("the GPUs of this run were given to others while the Prefect server was out of reach")

    def give_back(self) -> None:
        """End the loan; a server that is out of reach ends it by itself."""
        if self._lease is not None:
            with suppress(*PREFECT_FAILURES), get_client(sync_client=True) as client:
                client.release_concurrency_slots_with_lease(self._lease)


def _wait_for_share(share: _Share, config: EvaluationConfig, stopping: threading.Event) -> None:
    began = time.monotonic()
    is_told = False
    while not _take(share, config):
        if not is_told:
            is_told = True
            logger.info(
                "waits since %s for %d of the GPUs of the budget %s, which others have now",
                f"{datetime.now(UTC):%H:%M:%S} UTC", num_gpus(config), GPU_LIMIT,
            )  # fmt: skip
        if stopping.wait(_ASK_S):
            return
    if is_told:
        logger.info("goes on with its GPUs, %d, after %.0f s", num_gpus(config), time.monotonic() - began)


def _take(share: _Share, config: EvaluationConfig) -> bool:
    """Take the share; False while others have it, or the server is out of reach."""
    try:
        with get_client(sync_client=True) as client:
            return share.take(client)
    except httpx.HTTPStatusError as exc:
        if exc.response.status_code == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise _too_large(config, "made smaller meanwhile") from exc
        raise
    except httpx.TransportError:
        return False


def _too_large(config: EvaluationConfig, budget: str) -> LaunchError:
    return LaunchError(
        f"rollout.backend is {config.rollout.backend}, which takes {num_gpus(config)} GPUs; allowed: the budget "
        f"{GPU_LIMIT} of the Prefect server, {budget}; ask for fewer replicas, or raise it: `milepost deploy --gpus N`"
    )


def _read_limit() -> GlobalConcurrencyLimitResponse | None:
    """Return the budget that this process has to keep; None where there is none, or it is switched off.

    A server that belongs to this command alone keeps none: nobody is left there to end the loans of the killed.
    """
    url = PREFECT_API_URL.value()
    if not url or is_own_server(url):
        return None
    with get_client(sync_client=True) as client:
        limit = _read_by_name(client)
    return limit if limit is not None and limit.active else None


def _read_by_name(client: SyncPrefectClient) -> GlobalConcurrencyLimitResponse | None:
    try:
        return client.read_global_concurrency_limit_by_name(GPU_LIMIT)
    except ObjectNotFound:
        return None
