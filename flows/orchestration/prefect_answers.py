"""Whether a Prefect server answers at PREFECT_API_URL, and what its refusals mean to people.

Prefect wraps, renames and repeats what a server says; here it becomes what was seen and the next step, once.
"""

from http import HTTPStatus
from typing import Final, NamedTuple

import httpx
from prefect.client.base import ServerType
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.orchestration.server_access import name_source, use_login
from schemas.errors import MilepostError, SetupError, TransientError
from tasks.alerts.task import PREFECT_FAILURES

_UNREACHED: Final = "Failed to reach API"
"""How the error begins that Prefect makes of whatever keeps it from reading the server's version."""
_INCOMPATIBLE: Final = "Found incompatible versions"
"""How it begins where it has read it."""
_LOGIN: Final = (
    "set PREFECT_API_KEY or PREFECT_API_AUTH_STRING to what it asks for, or unset both to use the login of your own "
    "`milepost server`"
)
_ADDRESS: Final = "see that PREFECT_API_URL is the address of an API, such as http://127.0.0.1:4200/api"
_DELETED: Final = "somebody has deleted it, or the database is another one"
_PASSING: Final = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.LOCKED,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
)
"""Refusals that another login, address or time may not meet."""
_VERSION: Final = "use a server of the version of this Prefect"


class _Answer(NamedTuple):
    """What stands behind an error of Prefect's client."""

    said: str
    """What the server did, as the end of a sentence about it."""
    remedy: str = ""
    """What has to be done about it; empty where it may pass by itself."""
    is_silence: bool = False
    """Whether nothing listens there."""
    is_refusal: bool = False
    """Whether it refuses this one request, as it would again."""


def check_answer() -> None:
    """Return unless nothing listens at PREFECT_API_URL, or what does is no server for us; one may be too busy now.

    Raises:
        TransientError: nothing listens there.
        SetupError: what listens there is no Prefect server, wants another login, or is of another version.
    """
    use_login()
    url, file = PREFECT_API_URL.value(), name_source()
    named = f"PREFECT_API_URL is {url}" + (f" (set in {file})" if file else "")
    try:
        with (
            temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
            get_client(httpx_settings={"event_hooks": {"response": [_raise_refusal]}}, sync_client=True) as client,
        ):
            if client.server_type is ServerType.CLOUD:  # it tells no version, and wants a login for the rest
                client.read_flows(limit=1)
            client.raise_for_api_version_mismatch()
    except OSError as exc:
        raise SetupError(f"Prefect's client cannot be set up ({exc}); see PREFECT_API_SSL_CERT_FILE") from exc
    except (httpx.InvalidURL, TypeError, ValueError) as exc:  # no address; an answer, and no version in it
        raise SetupError(f"{named}, where no Prefect server answers ({exc}); {_ADDRESS}") from exc
    except (RuntimeError, *PREFECT_FAILURES) as exc:
        answer = _read(exc)
        if answer is None:
            raise
        if answer.remedy:
            raise SetupError(f"{named}, and what is there {answer.said}; {answer.remedy}") from exc
        if answer.is_silence:
            raise TransientError(
                f"{named}, where no Prefect server answers ({exc.__cause__ or exc}); start one with `milepost server`, "
                f"or {'remove it there' if file else 'unset it'} to use a server of this command's own"
            ) from exc


def _raise_refusal(response: httpx.Response) -> None:
    """Take the first answer as it is: Prefect's client sleeps for as long as a busy server asks for."""
    if not response.is_redirect:
        response.raise_for_status()


def require_answer() -> None:
    """Return as `check_answer` does.

    Raises:
        SetupError: none does; Prefect itself would try again for minutes.
    """
    try:
        check_answer()
    except TransientError as exc:
        raise SetupError(str(exc)) from exc


def require_server() -> None:
    """Return if the user has named a Prefect server, as `check_answer` does.

    Raises:
        SetupError: PREFECT_API_URL is not set, or no server answers there.
    """
    if not PREFECT_API_URL.value():
        raise SetupError(
            "PREFECT_API_URL is not set: start a server with `milepost server`, then export "
            "PREFECT_API_URL=http://127.0.0.1:4200/api"
        )
    require_answer()


def translate(error: Exception) -> MilepostError | None:
    """Return what an error that ended a flow tells of the Prefect server; None where it is about something else.

    Its exit code is that of a run that failed: something may have been launched.
    """
    answer = _read(error)
    if answer is None:
        return None
    kept = f"the Prefect server {answer.said}; what is finished is kept: "
    again = ", and run the same command to go on"
    if answer.is_refusal:
        return MilepostError(f"{kept}{answer.remedy}{again}")
    if not answer.remedy:
        return TransientError(f"{kept}see to the server{again}")
    failure = SetupError(f"{kept}{answer.remedy}{again}")
    failure.exit_code = MilepostError.exit_code
    return failure


def is_refusal(status: int) -> bool:
    """Whether an HTTP status refuses what was asked, as it would again."""
    return httpx.codes.is_client_error(status) and status not in _PASSING


def _read(error: BaseException | None) -> _Answer | None:
    if isinstance(error, ObjectNotFound):
        return _Answer("does not know this run any more", _DELETED, is_refusal=True)
    if isinstance(error, ObjectAlreadyExists):
        return _read(error.http_exc)
    if isinstance(error, httpx.HTTPStatusError):
        return _read_status(error)
    if isinstance(error, httpx.UnsupportedProtocol):
        return _Answer(f"cannot be asked ({error})", _ADDRESS)
    if isinstance(error, httpx.RequestError):
        words = str(error) or type(error).__name__  # a timeout has none
        return _Answer(f"does not answer any more ({words})", is_silence=isinstance(error, httpx.ConnectError))
    if isinstance(error, RuntimeError) and str(error).startswith(_UNREACHED):
        return _read(error.__cause__) or _Answer("answers, but not as a Prefect server", _ADDRESS)
    if isinstance(error, RuntimeError) and str(error).startswith(_INCOMPATIBLE):
        return _Answer(f"is of another version ({error})", _VERSION)
    return None


def _read_status(error: httpx.HTTPStatusError) -> _Answer:
    status = error.response.status_code
    said = f"answers {status} {error.response.reason_phrase} to {error.request.url.path}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return _Answer(said, _LOGIN)
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED) or error.response.is_redirect:
        return _Answer(said, _ADDRESS)
    if is_refusal(status):
        return _Answer(said, _VERSION, is_refusal=True)
    return _Answer(said)
