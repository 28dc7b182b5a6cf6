"""What the README tells people to type works as it stands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from infra.store import open_store
from schemas.tables import METRICS, RUNS, SAMPLES
from tests.support.store_tables import filled

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ONE_LINERS = re.findall(r"^    \.venv/bin/python (-c .*)$", README, re.MULTILINE)


@pytest.mark.parametrize("line", ONE_LINERS)
def test_the_one_liners_read_a_store(line: str, tmp_path: Path) -> None:
    names = {"run_id": "r1", "experiment_name": "exp"}
    store = open_store(tmp_path / "milepost-out")
    store.publish(
        "r1",
        "exp",
        {
            "runs": filled(RUNS, [names]),
            "samples": filled(SAMPLES, [{**names, "item_id": "item-seven", "verdict": "correct"}]),
            "metrics": filled(METRICS, [{**names, "subset": "all", "metric": "accuracy", "value": 0.625}]),
        },
    )
    command = [sys.executable, *shlex.split(line)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "item-seven" in done.stdout or "0.625" in done.stdout


def test_there_is_a_line_for_samples_and_one_for_metrics() -> None:
    assert len(ONE_LINERS) == 2


def test_every_command_of_the_readme_exists() -> None:
    named = set(re.findall(r"(?<!from )milepost ([a-z]+)", README))
    listed = CliRunner().invoke(app, ["--help"]).output
    missing = {name for name in named if not re.search(rf"\b{name}\b", listed)}
    assert not missing
    targets = set(re.findall(r"(?:`|^    )make ([a-z]+)", README, re.MULTILINE))
    assert {"demo", "test"} <= targets
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_every_example_of_a_config_loads() -> None:
    for config in sorted((ROOT / "examples").glob("*.yaml")):
        result = CliRunner().invoke(app, ["evaluate", str(config), "--print-config"])
        assert result.exit_code == 0, f"{config}: {result.output}"
