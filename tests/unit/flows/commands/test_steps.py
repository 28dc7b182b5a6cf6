"""What a command says before anything else: to stderr, as lines where that is no terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app

SHOWN = """
from flows.commands.steps import Steps

with Steps() as steps:
    steps.show("one")
    print("result", flush=True)
    steps.show("two")
"""


@pytest.mark.parametrize("command", [["evaluate"], ["deploy"], ["watch"]])
def test_the_first_line_comes_before_anything_is_read(tmp_path: Path, command: list[str]) -> None:
    words = [*command, str(tmp_path / "none.yaml"), *([str(tmp_path)] if command == ["watch"] else []), "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == "reading the configuration …"
    assert result.stdout.startswith("{")


def test_what_has_nothing_to_wait_for_says_nothing(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["evaluate", str(tmp_path / "none.yaml"), "--print-config"])
    assert "reading" not in result.stderr


@pytest.mark.parametrize("is_terminal", [False, True])
def test_standard_output_holds_the_result_alone(is_terminal: bool) -> None:
    shown, stderr = pty.openpty() if is_terminal else os.pipe()
    process = subprocess.run([sys.executable, "-c", SHOWN], stdout=subprocess.PIPE, stderr=stderr, check=True)
    text = os.read(shown, 100_000).decode()
    for descriptor in (shown, stderr):
        os.close(descriptor)
    assert process.stdout == b"result\n"
    assert "one" in text
    assert "two" in text
    assert ("\x1b" in text) == is_terminal
