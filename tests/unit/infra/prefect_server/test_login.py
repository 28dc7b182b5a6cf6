"""To whom the login of `milepost server` is sent, and who can read it."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.prefect_server import login as server_login
from infra.prefect_server.http_api import find_authorization
from infra.prefect_server.login import find_login, keep_login, read_login


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which this user listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_the_file_is_readable_by_its_owner_alone_and_the_login_stays(tmp_path: Path) -> None:
    first = keep_login(tmp_path, "http://127.0.0.1:4200/api")
    (kept,) = tmp_path.iterdir()
    assert (kept.stat().st_mode & 0o777, read_login(tmp_path)) == (0o600, first)
    assert keep_login(tmp_path, "http://127.0.0.1:4300/api") == first
    assert keep_login(tmp_path, "http://127.0.0.1:4300/api", "my:own") == "my:own"
    kept.chmod(0o640)
    assert read_login(tmp_path) is None
    assert keep_login(tmp_path, "http://127.0.0.1:4300/api") not in (first, "my:own")


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        ("http://127.0.0.1:{port}/api", True),
        ("http://localhost:{port}/api", True),
        ("http://127.0.0.1:{other}/api", False),
        ("http://127.0.0.1/api", False),
        ("https://127.0.0.1:{port}/api", False),
        ("http://127.0.0.1.evil.example:{port}/api", False),
        ("http://127.0.0.1:{port}@evil.example/api", False),
        ("http://evil.example:{port}/api", False),
        ("http://[::1]:{port}/api", False),
        ("http://[::1", False),
        ("no address", False),
    ],
)
def test_the_login_goes_to_its_own_address_alone(tmp_path: Path, port: int, url: str, is_sent: bool) -> None:
    login = keep_login(tmp_path, f"http://127.0.0.1:{port}/api")
    found = find_login(url.format(port=port, other=port - 1), tmp_path)
    assert found == (login if is_sent else None)


def test_the_login_is_not_sent_while_nobody_or_another_user_listens(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{port}/api"
    login = keep_login(tmp_path, url)
    table = tmp_path / "tcp"
    table.write_text(Path("/proc/net/tcp").read_text("ascii"))
    monkeypatch.setattr(server_login, "_SOCKET_TABLES", (table,))
    assert find_login(url, tmp_path) == login
    lines = table.read_text().splitlines()
    (row,) = (line for line in lines if f":{port:04X} 00000000:0000 0A" in line)
    cells = row.split()
    cells[7] = str(os.getuid() + 1)
    for rows in ([" ".join(cells)], [row, " ".join(cells)], []):
        table.write_text("\n".join([lines[0], *rows]))
        assert find_login(url, tmp_path) is None


def test_what_the_user_has_set_comes_before_the_file(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{port}/api"
    keep_login(tmp_path, url, "me:secret")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    for name in ("PREFECT_API_KEY", "PREFECT_API_AUTH_STRING"):
        monkeypatch.delenv(name, raising=False)
    assert find_authorization(url) == "Basic bWU6c2VjcmV0"
    monkeypatch.setenv("PREFECT_API_KEY", "key")
    assert find_authorization(url) == "Bearer key"
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "a:b")
    assert find_authorization(url) == "Basic YTpi"
