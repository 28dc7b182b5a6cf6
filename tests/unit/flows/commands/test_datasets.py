"""`milepost drift` and `milepost refresh`: what they show, and how they end."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from flows.cli import app


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_sums(tmp_path / "data.jsonl", 0)
    document = {
        "actor": {"path": "none"},
        "valid_dataset": {"path": str(tmp_path / "data.jsonl"), "name": "sums"},
        "cluster": {"fileroot": str(tmp_path / "out")},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def write_sums(path: Path, first: int, *, story: str = "") -> None:
    rows = [{"question": f"{story}What is {n} plus 2?", "answer": f"#### {n + 2}"} for n in range(first, first + 60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_the_first_look_freezes_and_a_changed_dataset_ends_with_exit_code_3(config: Path) -> None:
    code, shown, _ = run("drift", str(config))
    assert (code, "nothing compared yet" in shown, "frozen" in shown) == (0, True, True)
    write_sums(config.parent / "data.jsonl", 0, story="Tom, who keeps bees and tells long stories, asks his aunt: ")
    code, shown, _ = run("drift", str(config), "--json")
    assert code == 3
    check = json.loads(shown)
    assert (check["status"], check["drifted"]) == ("checked", True)
    code, shown, _ = run("drift", str(config))
    assert (code, "**drift**" in shown, "prompt\\_length" in shown) == (3, True, True)


def test_a_refresh_draws_and_a_rollback_goes_back(config: Path) -> None:
    pool = config.parent / "pool.jsonl"
    write_sums(pool, 1000)
    where = f"refresh.pool=[{pool}]"
    code, shown, _ = run("refresh", str(config), where)
    assert (code, "version v2" in shown) == (0, True)
    code, shown, _ = run("refresh", str(config), where, "--rollback", "v1")
    assert (code, "is asked from now on" in shown) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["refresh"], "refresh.pool is empty"),
        (["refresh", "--rollback", "v7"], "'v7'"),
        (["refresh", "refresh.pool=[absent.jsonl]"], "absent.jsonl"),
        (["drift", "drift.reference=absent.jsonl"], "drift.reference"),
        (["drift", "drift.features=[no.such.function]"], "no.such.function"),
        (["drift", "valid_dataset.path=absent.jsonl"], "absent.jsonl"),
    ],
)
def test_what_cannot_be_is_refused(config: Path, arguments: list[str], words: str) -> None:
    name, *rest = arguments
    code, _, errors = run(name, str(config), *rest)
    assert code == 2
    assert words in errors
