"""What is said to a Prefect server over HTTP where Prefect is not installed, as in a training environment, or not yet
imported.

Owns the request; must not decide what is said. The standard library is all it needs.
"""

import json
import os
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from infra.prefect_server.login import find_login

_TIMEOUT_S: Final = 5.0
"""Longest wait for a server that answers nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefectApi:
    """A server that is told things."""

    url: str
    """Such as http://127.0.0.1:4200/api."""


def find_api() -> PrefectApi | None:
    """Return the server that the environment names, in Prefect's own variables; None without one."""
    url = os.environ.get("PREFECT_API_URL", "").rstrip("/")
    if not url.startswith(("http://", "https://")):
        return None
    return PrefectApi(url=url)


def find_authorization(url: str) -> str | None:
    """Return the value of the header that a request to the server needs: by Prefect's variables, else its own login."""
    login, key = os.environ.get("PREFECT_API_AUTH_STRING"), os.environ.get("PREFECT_API_KEY")
    if not login and key:  # the login goes before the key, as in Prefect's client
        return f"Bearer {key}"
    login = login or find_login(url)
    return f"Basic {b64encode(login.encode()).decode()}" if login else None


def post_event(
    api: PrefectApi, name: str, *, event_id: UUID, resource: Mapping[str, str], payload: Mapping[str, object]
) -> None:
    """Emit one event; `resource` holds its labels, `prefect.resource.id` among them.

    A server drops an event whose `event_id` it has had within about half an hour.

    Raises:
        OSError: no answer within seconds, or one that refuses.
    """
    event = {
        "id": str(event_id),
        "occurred": datetime.now(UTC).isoformat(),
        "event": name,
        "resource": resource,
        "payload": payload,
    }
    _ask(api, "events", json.dumps([event]).encode())


def read_run_parameters(api: PrefectApi, run_id: str) -> Mapping[str, object]:
    """Return the parameters of a flow run.

    Raises:
        OSError: no answer within seconds, or one that refuses.
        ValueError: the answer is no JSON.
    """
    parameters: dict[str, object] = json.loads(_ask(api, f"flow_runs/{run_id}"))["parameters"]
    return parameters


def _ask(api: PrefectApi, path: str, body: bytes | None = None) -> bytes:
    """Post a body, or get what is there."""
    headers = {"Content-Type": "application/json"}
    if authorization := find_authorization(api.url):  # each time: the server may have been started since
        headers["Authorization"] = authorization
    request = urllib.request.Request(f"{api.url}/{path}", body, headers)  # noqa: S310 - http(s), checked in find_api
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:  # noqa: S310 - as above
        answer: bytes = reply.read()
    return answer
