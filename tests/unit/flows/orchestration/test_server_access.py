"""How a command reaches its Prefect server: past every proxy, and with the file named that holds its address."""

import os
import sys
from pathlib import Path

import pytest

from flows.orchestration.server_access import name_source, reach_loopback_directly

LOOPBACK = "127.0.0.1,localhost,::1"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder where nothing is set."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({"http_proxy": ""}, {}),
        ({"http_proxy": "http://p:1"}, {"http_proxy": "http://p:1", "no_proxy": LOOPBACK}),
        (
            {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a, b"},
            {"HTTPS_PROXY": "http://p:1", "no_proxy": f"a,b,{LOOPBACK}"},
        ),
        ({"http_proxy": "http://p:1", "no_proxy": "localhost"}, {"no_proxy": "localhost,127.0.0.1,::1"}),
        ({"http_proxy": "http://p:1", "no_proxy": "*"}, {"no_proxy": "*"}),
    ],
)
def test_a_proxy_is_not_asked_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, str], after: dict[str, str]
) -> None:
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    assert reach_loopback_directly() is None
    assert {name: os.environ.get(name) for name in after} == after
    assert os.environ.get("no_proxy") == os.environ.get("NO_PROXY")


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("value", ["socks5://p:1", "SOCKS5h://p:1"])
def test_a_proxy_that_no_client_can_use_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    monkeypatch.setitem(sys.modules, "socksio", None)
    assert "ALL_PROXY" in str(reach_loopback_directly())
    assert reach_loopback_directly() is None


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("prefect.toml", '[api]\nurl = "http://h/api"\n', "prefect.toml"),
        ("pyproject.toml", '[tool.prefect.api]\nurl = "http://h/api"\n', "pyproject.toml"),
        (".env", "PREFECT_API_URL=http://h/api\n", ".env"),
        ("home/profiles.toml", 'active = "p"\n[profiles.p]\nPREFECT_API_URL = "http://h/api"\n', "home/profiles.toml"),
        ("pyproject.toml", "[tool.other]\n", None),
    ],
)
def test_the_file_that_sets_the_address_is_named(
    bare: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, named: str | None
) -> None:
    (bare / file).parent.mkdir(exist_ok=True)
    (bare / file).write_text(text)
    found = name_source()
    assert found is None if named is None else str(found).endswith(str(bare / named))
    monkeypatch.setenv("PREFECT_API_URL", "http://environment/api")
    assert name_source() is None
