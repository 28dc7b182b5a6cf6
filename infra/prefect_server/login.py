"""The login of `milepost server`, in a file that only its owner can read.

Owns the file and the rule to whom the login is sent: to the address in the file, as long as this user listens there.
The standard library is all it needs, as a trainer's environment reads it too.
"""

import json
import os
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_FILE: Final = "milepost-server.login"
_LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost"})
_LISTENING: Final = "0A"
"""State of a listening socket in the kernel's tables."""
_SOCKET_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def make_login() -> str:
    """Return a new random login, as `user:password`."""
    return f"milepost:{secrets.token_urlsafe(32)}"


def keep_login(home: Path, api_url: str, login: str | None = None) -> str:
    """Write the login of the server at `api_url`, and return it: `login`, else that of its last start, else a new one.

    Raises:
        OSError: the file cannot be written.
    """
    path = home / _FILE
    login = login or _read(path).get("login") or make_login()
    descriptor, name = tempfile.mkstemp(dir=home, prefix=_FILE)  # mkstemp makes the file with mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"api_url": api_url, "login": login}, file)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return login


def read_login(home: Path) -> str | None:
    """Return the login of the last `milepost server` of this home; None before the first."""
    return _read(home / _FILE).get("login")


def find_login(api_url: str, home: Path | None = None) -> str | None:
    """Return the login for the server at `api_url`; None where that is no running `milepost server` of this user.

    `home`: Prefect's folder; by default PREFECT_HOME, else ~/.prefect.
    """
    kept = _read((home or _default_home()) / _FILE)
    port = _loopback_port(api_url)
    if port is None or port != _loopback_port(kept.get("api_url", "")) or not _listens_here(port):
        return None
    return kept.get("login")


def _default_home() -> Path:
    return Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()


def _read(path: Path) -> dict[str, str]:
    """Return what the file holds; nothing where it is no file that this user alone can read."""
    try:
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                return {}
            kept: object = json.load(file)
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in kept.items()} if isinstance(kept, dict) else {}


def _loopback_port(url: str) -> int | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    return port if parts.scheme == "http" and parts.hostname in _LOOPBACK_NAMES else None


def _listens_here(port: int) -> bool:
    """Whether this user, and nobody else, listens on the port: while the server is away, another user could."""
    owners: set[int] = set()
    for table in _SOCKET_TABLES:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, address, _, state, _, _, _, owner, *_ = line.split()
            if state == _LISTENING and int(address.rpartition(":")[2], 16) == port:
                owners.add(int(owner))
    if not any(table.exists() for table in _SOCKET_TABLES):
        return True  # a system without these tables
    return owners == {os.getuid()}
