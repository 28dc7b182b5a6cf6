"""`--config FILE` means what CONFIG means."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app

ROOT = Path(__file__).resolve().parents[4]
DEMO = str(ROOT / "examples/demo.yaml")


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config", DEMO, "gconfig.n_samples=7", "--print-config"],
        [f"--config={DEMO}", "--print-config", "gconfig.n_samples=7"],
        ["gconfig.n_samples=7", "--config", DEMO, "--print-config"],
        ["--print-config", "--config", DEMO, "--", "gconfig.n_samples=7"],
    ],
)
def test_the_option_means_the_argument(arguments: list[str]) -> None:
    assert run("evaluate", *arguments) == run("evaluate", DEMO, "gconfig.n_samples=7", "--print-config")
    assert run("evaluate", *arguments)[0] == 0


@pytest.mark.parametrize("command", [["evaluate"], ["drift"], ["refresh"], ["watch", "out"], ["status", "out"]])
def test_every_command_with_a_configuration_takes_it(command: list[str], tmp_path: Path) -> None:
    name, *arguments = command
    absent = str(tmp_path / "absent.yaml")
    positional, option = run(name, absent, *arguments), run(name, *arguments, "--config", absent)
    assert option == positional
    assert option[0] == 2
    assert "no such file" in option[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate", DEMO, "--config", DEMO], "cannot be one too"),
        (["watch", DEMO, "out", "--config", DEMO], "cannot be one too"),
        (["deploy", DEMO, "--config", DEMO], "unexpected extra argument"),
        (["drift", "--config", DEMO, "--config", DEMO], "2 times"),
        (["drift", "--config"], "needs a file"),
        (["refresh", "--config="], "needs a file"),
    ],
)
def test_a_configuration_given_twice_or_not_at_all_is_an_error(arguments: list[str], said: str) -> None:
    code, _, errors = run(*arguments)
    assert code == 2
    assert said in " ".join(errors.replace("│", " ").split())
