"""The Prefect server of one command answers, ends with it, and says why when it cannot start."""

import urllib.error
from pathlib import Path

import psutil
import pytest

from flows.orchestration.local_server import LocalServer
from schemas.errors import MilepostError, SetupError
from tests.support.prefect_server import ask_api, fill_home, wait_for

pytestmark = pytest.mark.needs_prefect


@pytest.fixture
def prefect_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    return tmp_path / "prefect"


FOREIGN = {
    "PREFECT_SERVER_API_BASE_PATH": "/elsewhere",
    "PREFECT_SERVER_API_AUTH_STRING": "my:own",
    "PREFECT_API_AUTH_STRING": "my:own",
    "PREFECT_API_DATABASE_CONNECTION_URL": "sqlite+aiosqlite:////no/such/folder/db",
    "http_proxy": "http://127.0.0.1:9",
    "ALL_PROXY": "socks5://127.0.0.1:9",
}
"""What users have set for servers and networks of their own."""


def test_it_is_its_commands_own_whatever_the_user_has_set(
    prefect_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers on the loopback address, to who has its login, until it is left."""
    fill_home(prefect_home)
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "prefect.toml").write_text('[server.api]\nbase_path = "/from-a-file"\n')
    (prefect_home / "profiles.toml").write_text('active = "p"\n[profiles.p]\nPREFECT_SERVER_API_BASE_PATH = "/p"\n')
    monkeypatch.chdir(tmp_path)
    with LocalServer(prefect_home) as server:
        url = server.wait_ready()
        for name in ("http_proxy", "ALL_PROXY"):  # urllib would keep them for all later tests
            monkeypatch.delenv(name)
        assert url.startswith("http://127.0.0.1:")
        assert ask_api(url, "health", method="GET") is True
        assert ask_api(url, "flows/filter", login=server.login) == []
        for login in ("my:own", None):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                ask_api(url, "flows/filter", login=login)
    with pytest.raises(OSError, match="refused"):
        ask_api(url, "health", method="GET")


def test_a_server_that_cannot_start_says_why(prefect_home: Path) -> None:
    (prefect_home / "prefect.db").mkdir(parents=True)
    with LocalServer(prefect_home) as server, pytest.raises(SetupError, match="ended with exit code") as caught:
        server.wait_ready()
    assert "PREFECT_API_URL" in str(caught.value)
    assert not str(caught.value).endswith("It said: nothing")


def error_of(server: LocalServer) -> MilepostError | None:
    try:
        server.check()
    except MilepostError as exc:
        return exc
    return None


def test_a_server_that_ends_after_it_has_answered_is_no_wrong_input(prefect_home: Path) -> None:
    fill_home(prefect_home)
    before = set(psutil.Process().children())
    with LocalServer(prefect_home) as server:
        server.wait_ready()
        server.check()
        (process,) = set(psutil.Process().children()) - before
        process.kill()
        error = wait_for(lambda: error_of(server), "end of the server")  # its threads end one by one
    assert "ended with exit code" in str(error)
    assert error.exit_code == 1


def test_a_folder_that_cannot_be_written_is_named(prefect_home: Path) -> None:
    prefect_home.write_text("a file")
    with pytest.raises(SetupError, match="set PREFECT_HOME") as caught:
        LocalServer(prefect_home).__enter__()
    assert str(prefect_home) in str(caught.value)


def test_a_server_that_is_too_slow_is_given_up(prefect_home: Path) -> None:
    with LocalServer(prefect_home, timeout_s=0.0) as server, pytest.raises(SetupError, match="no answer within 0 s"):
        server.wait_ready()
