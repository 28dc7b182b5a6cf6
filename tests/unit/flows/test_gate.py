"""`milepost gate`: exit code 3 for a drop that is sure and large enough, 2 where nothing can be said."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from infra.store import open_store
from schemas.tables import METRICS, RUNS, SAMPLES
from tests.support.store_tables import filled

NUM_ITEMS = 200


def publish(fileroot: Path, run_id: str, num_correct: int, *, first_item: int = 0, **columns: str) -> None:
    """A run that answers the first so many of its problems; `columns` are those of its row in `runs`."""
    names = {"run_id": run_id, "experiment_name": "exp"}
    samples = [
        {
            **names,
            "dataset": "toy",
            "dataset_version": "v",
            "item_id": f"i{first_item + number:03d}",
            "verdict": "correct" if number < num_correct else "wrong",
            "score": float(number < num_correct),
        }
        for number in range(NUM_ITEMS)
    ]
    tables = {
        "runs": filled(RUNS, [names | {"engine": "vllm"} | columns]),
        "samples": filled(SAMPLES, samples),
        "metrics": filled(
            METRICS, [{**names, "subset": "all", "metric": "accuracy", "value": num_correct / NUM_ITEMS}]
        ),
    }
    open_store(fileroot).publish(run_id, "exp", tables)


def gate(fileroot: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["gate", *arguments, "--fileroot", str(fileroot)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def fileroot(tmp_path: Path) -> Path:
    for run_id, num_correct in {"before": 100, "worse": 80, "better": 120}.items():
        publish(tmp_path, run_id, num_correct)
    return tmp_path


def test_a_sure_and_large_drop_fails_and_a_rise_passes(fileroot: Path) -> None:
    code, shown, _ = gate(fileroot, "worse", "--against", "before")
    assert (code, "gate     failed" in shown) == (3, True)
    code, shown, _ = gate(fileroot, "better", "--against", "before")
    assert (code, "gate     passed" in shown) == (0, True)


def test_a_drop_that_is_too_small_to_count_passes(fileroot: Path) -> None:
    assert gate(fileroot, "worse", "--against", "before", "--minimum-effect", "0.1")[0] == 3
    assert gate(fileroot, "worse", "--against", "before", "--minimum-effect", "0.11")[0] == 0


def test_a_script_reads_one_object(fileroot: Path) -> None:
    code, shown, _ = gate(fileroot, "worse", "--against", "before", "--json")
    found = json.loads(shown)
    assert (code, found["has_regressed"], found["comparison"]["difference"]) == (3, True, pytest.approx(-0.1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gone", "--against", "before"), "gone"),
        (("worse", "--against", "worse"), "both runs are"),
        (("elsewhere", "--against", "before"), "0 scored problems in common"),
    ],
)
def test_where_nothing_can_be_said_the_gate_does_not_pass(
    fileroot: Path, arguments: tuple[str, ...], message: str
) -> None:
    publish(fileroot, "elsewhere", 100, first_item=500)
    code, shown, errors = gate(fileroot, *arguments)
    assert (code, shown) == (2, "")
    assert message in errors


def test_an_effect_outside_of_its_range_is_refused(fileroot: Path) -> None:
    assert gate(fileroot, "worse", "--against", "before", "--minimum-effect", "2")[0] == 2


def test_made_up_answers_are_marked_and_never_compared_with_a_model_s(fileroot: Path) -> None:
    for run_id in ("dummy", "dummy-2"):
        publish(fileroot, run_id, 100, engine="stand_in")
    for command in (["gate", "dummy", "--against", "before"], ["compare", "before", "dummy"]):
        result = CliRunner().invoke(app, [*command, "--fileroot", str(fileroot)])
        assert result.exit_code == 2
        assert "run dummy is of the dummy engine" in result.stderr
    assert CliRunner().invoke(app, ["compare", "dummy", "dummy-2", "--fileroot", str(fileroot)]).exit_code == 0
    listed = CliRunner().invoke(app, ["runs", "--fileroot", str(fileroot)]).stdout.splitlines()
    assert {line.split()[0] for line in listed if "dummy engine 0.500" in line} == {"dummy", "dummy-2"}


@pytest.mark.parametrize(("before", "after", "is_named"), [("a", "b", True), ("a", "a", False), (None, "b", False)])
def test_another_configuration_of_the_model_is_named(
    tmp_path: Path, before: str | None, after: str, is_named: bool
) -> None:
    for run_id, digest in (("before", before), ("after", after)):
        publish(tmp_path, run_id, 100, **({} if digest is None else {"model_config_digest": digest}))
    shown = CliRunner().invoke(app, ["compare", "before", "after", "--fileroot", str(tmp_path)]).stdout
    assert ("differs  model_config_digest a -> b" in shown) is is_named
