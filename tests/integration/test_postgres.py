"""A team's server keeps what it knows in Postgres; no service that CI requires: skipped where it is not installed."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.prefect_server import CONFIG, free_port, serve

_DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian has the programs, by version."""


def find_programs() -> Path:
    """The folder of Postgres's programs."""
    found = [path.parent for path in _DEBIAN.glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        pytest.skip("no Postgres: install Debian's package postgresql")
    return max(found, default=Path(on_path or "").parent)


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of an empty database that goes with the test."""
    programs = find_programs()
    folder, port = Path(tempfile.mkdtemp(prefix="milepost-postgres-")), free_port()
    account = pwd.getpwnam("postgres") if os.geteuid() == 0 else None  # it refuses to be run by root
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)

    def run(program: str, *arguments: str) -> None:
        user = None if account is None else account.pw_name
        subprocess.run([programs / program, *arguments], cwd=folder, user=user, check=True, stdout=subprocess.DEVNULL)

    data = str(folder / "data")
    try:
        run("initdb", "--pgdata", data, "--auth", "trust", "--username", "milepost", "--no-sync")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        run("pg_ctl", "--pgdata", data, "--options", options, "--log", str(folder / "log"), "--wait", "start")
        try:
            run("createdb", "--host", "127.0.0.1", "--port", str(port), "--username", "milepost", "prefect")
            yield f"postgresql+asyncpg://milepost@127.0.0.1:{port}/prefect"
        finally:
            run("pg_ctl", "--pgdata", data, "--mode", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def test_what_is_deployed_and_evaluated_stands_in_postgres(
    engine_python: Path, demo_checkpoint: Path, database: str, tmp_path: Path
) -> None:
    variables = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": database}
    with serve(tmp_path, variables=variables) as served:
        first = served.deploy(CONFIG)
        assert {each["change"] for each in first if each["kind"] == "deployment"} == {"created"}
        budget = served.milepost("deploy", "--gpus", "1")
        assert budget.returncode == 0, budget.stderr
        run = served.start("evaluate")
        assert served.finish(run) == "COMPLETED"
    assert not list((tmp_path / "prefect").glob("*.db"))
    with serve(tmp_path, variables=variables) as served:
        assert {each["change"] for each in served.deploy(CONFIG)} == {"unchanged"}
        assert served.state(run)["type"] == "COMPLETED"
        assert {"summary", "metrics"} <= set(served.artifacts(run))
