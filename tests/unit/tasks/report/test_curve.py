"""The curve on the Prefect run's page: of this experiment and dataset alone, once there is a line to draw."""

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

from tasks.report.curve import draw_training_curve
from tests.support.training_stores import publish_run


def drawn(store: Any, dataset: str = "gsm8k", experiment: str = "exp") -> str | None:
    """The picture's SVG."""
    summary: Any = SimpleNamespace(experiment_name=experiment, dataset=dataset)
    found = draw_training_curve(store, summary)
    if found is None:
        return None
    prefix = "![accuracy over training](data:image/svg+xml;base64,"
    assert found.startswith(prefix)
    assert found.endswith(")")
    return base64.b64decode(found[len(prefix) : -1]).decode()


def test_a_line_is_drawn_from_the_second_checkpoint_on(tmp_path: Path) -> None:
    store = publish_run(tmp_path, "run-1", right=20, step=100)
    publish_run(tmp_path, "run-2", right=30, step=200, dataset="math")
    publish_run(tmp_path, "run-3", right=30, step=200, trial_name="b")
    assert drawn(store) is None
    publish_run(tmp_path, "run-4", right=40, step=300, checkpoint="/ckpt/<b>")
    svg = drawn(store)
    assert svg is not None
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "white" in svg
    assert "gsm8k" in svg
    assert "math" not in svg
    assert drawn(store, dataset="math") is None


def test_a_store_without_the_experiment_costs_no_run(tmp_path: Path) -> None:
    assert drawn(publish_run(tmp_path, "run-1", right=20), experiment="other") is None
