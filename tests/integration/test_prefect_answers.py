"""What a server at PREFECT_API_URL answers, over real HTTP, and what becomes of it: a reason, never a traceback."""

import http.server
import json
import os
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path

import prefect
import pytest
from prefect.client.orchestration import get_client
from prefect.context import SyncClientContext
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.orchestration.prefect_answers import check_answer, require_answer, translate
from flows.watch import watch
from schemas.config import load_config
from schemas.errors import DatasetError, MilepostError, SetupError, TransientError
from tests.support.evaluation_bench import Bench
from tests.support.prefect_server import MILEPOST, ROOT, free_port

pytestmark = pytest.mark.needs_prefect

VERSION = json.dumps(prefect.__version__)
Answering = Callable[..., str]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers everything alike, but what `bodies` of its server holds."""

    def answer(self) -> None:
        assert isinstance(self.server, Server)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = self.server.bodies.get(self.path)
        status, body = (self.server.status, self.server.body) if body is None else (HTTPStatus.OK, body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_POST = do_PATCH = answer  # noqa: N815 - the names that http.server asks for

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the name of the class above
        pass


class Server(http.server.ThreadingHTTPServer):
    """A server whose answers a test decides."""

    def __init__(self, status: HTTPStatus, body: str, bodies: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.body = body
        self.bodies = bodies


@contextmanager
def _serving(status: HTTPStatus, body: str, bodies: dict[str, str]) -> Generator[str]:
    with Server(status, body, bodies) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/api"
        server.shutdown()
        thread.join()


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Have a server, which is the user's, and return its URL."""
    with ExitStack() as stack:

        def start(status: HTTPStatus, body: str = "", **bodies: str) -> str:
            paths = {f"/api/{name.replace('_', '/')}": text for name, text in bodies.items()}
            url = stack.enter_context(_serving(status, body, paths))
            stack.enter_context(temporary_settings({PREFECT_API_URL: url, PREFECT_CLIENT_MAX_RETRIES: 0}))
            return url

        yield start


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (HTTPStatus.UNAUTHORIZED, '{"exception_message": "Unauthorized"}', ["401", "PREFECT_API_AUTH_STRING"]),
        (HTTPStatus.FORBIDDEN, "", ["403", "PREFECT_API_KEY"]),
        (HTTPStatus.NOT_FOUND, '{"detail": "Not Found"}', ["404 Not Found", "http://127.0.0.1:4200/api"]),
        (HTTPStatus.OK, "<!DOCTYPE html>", ["not as a Prefect server", "http://127.0.0.1:4200/api"]),
        (HTTPStatus.OK, '{"status": "ok"}', ["no Prefect server", "http://127.0.0.1:4200/api"]),
        (HTTPStatus.OK, '"1.4.0"', ["1.4.0", "version"]),
    ],
)
def test_what_is_no_server_for_us_is_refused_at_once(
    answering: Answering, status: HTTPStatus, body: str, words: list[str]
) -> None:
    url = answering(status, body)
    with pytest.raises(SetupError) as caught:
        check_answer()
    for word in (f"PREFECT_API_URL is {url}", *words):
        assert word in str(caught.value)


@pytest.mark.parametrize("status", [HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY])
def test_a_server_that_is_busy_is_one(answering: Answering, status: HTTPStatus) -> None:
    answering(status, "no")
    check_answer()


def test_a_server_that_answers_is_one(answering: Answering) -> None:
    answering(HTTPStatus.OK, VERSION)
    check_answer()


def test_where_nothing_listens_there_may_be_a_server_another_time() -> None:
    url = f"http://127.0.0.1:{free_port()}/api"
    with temporary_settings({PREFECT_API_URL: url}):
        with pytest.raises(TransientError, match=r"no Prefect server answers \(.*refused"):
            check_answer()
        with pytest.raises(SetupError, match=f"PREFECT_API_URL is {url}, where no Prefect server answers"):
            require_answer()


@pytest.mark.parametrize("url", ["localhost:4200/api", "ftp://127.0.0.1/api", "http://127.0.0.1/\x7f", "4200"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with temporary_settings({PREFECT_API_URL: url}), pytest.raises(SetupError, match="PREFECT_API_URL is"):
        check_answer()


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (HTTPStatus.UNAUTHORIZED, SetupError, "PREFECT_API_AUTH_STRING"),
        (HTTPStatus.NOT_FOUND, SetupError, "PREFECT_API_URL"),
        (HTTPStatus.SERVICE_UNAVAILABLE, TransientError, "503 Service Unavailable"),
        (HTTPStatus.CONFLICT, TransientError, "409 Conflict"),
        (HTTPStatus.UNPROCESSABLE_ENTITY, MilepostError, "422 Unprocessable Entity"),
    ],
)
def test_an_error_of_a_flow_tells_what_the_server_did(
    answering: Answering, status: HTTPStatus, kind: type[MilepostError], words: str
) -> None:
    answering(status, "no")

    def enter_flow() -> None:
        SyncClientContext().__enter__()

    def make_flow() -> None:
        with get_client(sync_client=True) as client:
            client.create_flow_from_name("evaluate")

    for ask in (enter_flow, make_flow):
        with pytest.raises(Exception, match=r".") as caught:
            ask()
        failure = translate(caught.value)
        assert failure is not None
        assert type(failure) is kind
        assert failure.exit_code == 1
        assert words in str(failure)
        assert "run the same command to go on" in str(failure)


def test_an_error_of_something_else_is_a_bug() -> None:
    assert translate(RuntimeError("no")) is None
    assert translate(ValueError("Failed to reach API")) is None


@pytest.mark.parametrize(
    ("bodies", "status", "code", "kind"),
    [
        ({}, HTTPStatus.UNAUTHORIZED, 2, "SetupError"),
        ({}, HTTPStatus.NOT_FOUND, 2, "SetupError"),
        ({"admin_version": VERSION}, HTTPStatus.SERVICE_UNAVAILABLE, 1, "TransientError"),
    ],
)
def test_a_command_ends_with_the_reason(
    answering: Answering, tmp_path: Path, bodies: dict[str, str], status: HTTPStatus, code: int, kind: str
) -> None:
    bench = Bench(tmp_path)
    variables = {
        "PREFECT_API_URL": answering(status, "no", **bodies),
        "PREFECT_CLIENT_MAX_RETRIES": "0",
        "PREFECT_HOME": str(tmp_path / "prefect"),
    }
    done = subprocess.run(
        [*MILEPOST, "evaluate", str(bench.config), "--json"],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    error = json.loads(done.stdout)["error"]
    assert (error["type"], str(int(status)) in error["message"]) == (kind, True)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("launcher", ["auto", "local", "deployment"])
def test_a_watcher_does_not_wait_for_a_server_that_is_none(answering: Answering, tmp_path: Path, launcher: str) -> None:
    bench = Bench(tmp_path)
    config = load_config(bench.config, [f"watch.launcher={launcher}"])
    answering(HTTPStatus.UNAUTHORIZED, "no")
    with pytest.raises(SetupError, match="PREFECT_API_AUTH_STRING"):
        watch([config], tmp_path, once=True, is_patient=False)


def test_a_dataset_is_read_before_a_watcher_waits_for_its_server(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    config = load_config(bench.config, ["valid_dataset.path=no/such/data.jsonl"])
    url = f"http://127.0.0.1:{free_port()}/api"
    with temporary_settings({PREFECT_API_URL: url}), pytest.raises(DatasetError, match=r"no/such/data\.jsonl"):
        watch([config], tmp_path, once=True, is_patient=False)
