"""What pyslurm says of arrays is read as squeue shows it; where pyslurm cannot be used, that is said."""

import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.slurm.cli import CliClient
from infra.slurm.pyslurm_client import PyslurmClient, expand_elements
from infra.slurm.selection import select_client
from schemas.errors import SetupError

needs_no_pyslurm = pytest.mark.skipif(importlib.util.find_spec("pyslurm") is not None, reason="pyslurm is installed")


@pytest.mark.parametrize(
    ("text", "elements"),
    [("0", [0]), ("0-3", [0, 1, 2, 3]), ("1,4-5", [1, 4, 5]), ("0-8:4,11", [0, 4, 8, 11]), ("7-7", [7])],
)
def test_the_elements_of_an_array_are_read(text: str, elements: list[int]) -> None:
    assert list(expand_elements(text)) == elements


@given(st.sets(st.integers(0, 2000), min_size=1))
def test_whatever_set_of_elements_is_written_is_read_back(elements: set[int]) -> None:
    assert list(expand_elements(",".join(map(str, sorted(elements))))) == sorted(elements)


def test_commands_are_taken_where_they_are_asked_for() -> None:
    selected = select_client("cli")
    assert isinstance(selected.client, CliClient)
    assert "scheduler.slurm.client" in selected.reason


@needs_no_pyslurm
def test_without_pyslurm_auto_takes_the_commands_and_says_why() -> None:
    selected = select_client("auto")
    assert isinstance(selected.client, CliClient)
    assert "pyslurm is not installed" in selected.reason


@needs_no_pyslurm
def test_pyslurm_asked_for_and_absent_is_refused(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("bin")
    scontrol = folder / "scontrol"
    scontrol.write_text("#!/bin/sh\necho slurm 22.05.8\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    with pytest.raises(
        SetupError, match=r"scheduler.slurm.client is pyslurm.*No module named.*for Slurm 22.05.8.*auto"
    ):
        select_client("pyslurm")


def test_pyslurm_without_slurm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    client = PyslurmClient(CliClient())
    with pytest.raises(SetupError, match=r"not installed|cannot be imported"):
        client.check()
    client.close()
