"""Embeddings and other vectors: two samples by the distance of their centroids."""

import math
import sys
import types
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from schemas.drift import DriftConfig
from schemas.errors import ConfigError
from tasks.drift.detector import detect_drift
from tasks.drift.two_samples import Level
from tasks.drift.vectors import MAX_VECTORS, compare_vectors

LEVEL = Level(alpha=0.01, num_features=8)


def draw(rng: np.random.Generator, count: int, *, shift: float = 0.0) -> np.ndarray:
    vectors = rng.normal(size=(count, 32))
    vectors[:, 0] += shift
    return vectors


def test_two_halves_of_one_population_are_silent() -> None:
    rng = np.random.default_rng(1)
    p_values = [compare_vectors(draw(rng, 200), draw(rng, 200), LEVEL).p_value for _ in range(60)]
    assert sum(p_value < LEVEL.strict for p_value in p_values) <= 1
    assert sum(p_value < 0.5 for p_value in p_values) < 45


def test_a_moved_centre_is_seen_and_its_distance_told() -> None:
    rng = np.random.default_rng(2)
    found = compare_vectors(draw(rng, 500), draw(rng, 500, shift=1.5), LEVEL)
    assert found.p_value < LEVEL.strict
    assert found.effect == pytest.approx(1.5 / math.sqrt(32), rel=0.25)
    assert found.smallest_detectable < found.effect


def test_order_does_not_matter_and_a_sample_is_no_distance_from_itself() -> None:
    rng = np.random.default_rng(3)
    before, after = draw(rng, 150), draw(rng, 90, shift=0.5)
    assert compare_vectors(before, after, LEVEL) == compare_vectors(before[::-1], rng.permutation(after), LEVEL)
    itself = compare_vectors(before, rng.permutation(before), LEVEL)
    assert (itself.effect, itself.p_value) == (0.0, 1.0)


def test_many_vectors_are_sampled() -> None:
    rng = np.random.default_rng(4)
    found = compare_vectors(draw(rng, MAX_VECTORS + 500), draw(rng, 50), LEVEL)
    assert (found.num_reference, found.num_current) == (MAX_VECTORS, 50)


@pytest.fixture
def feature(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], object]], DriftConfig]:
    """Makes a function of the test's own a feature."""
    module = types.ModuleType("my_embeddings")
    monkeypatch.setitem(sys.modules, "my_embeddings", module)

    def configure(function: Callable[[str], object]) -> DriftConfig:
        module.embed = function  # type: ignore[attr-defined]
        return DriftConfig(features=("my_embeddings.embed",))

    return configure


def problems(*prompts: str) -> pa.Table:
    return pa.table({"item_id": [str(row) for row in range(len(prompts))], "prompt": list(prompts)})


def letters(prompt: str) -> list[float]:
    return [float(prompt.count(letter)) for letter in "aeiou"]


def test_a_function_that_returns_vectors_is_a_feature(
    feature: Callable[[Callable[[str], object]], DriftConfig],
) -> None:
    before = problems(*(f"banana {'e' * (n % 3)} {n}" for n in range(100)))
    after = problems(*(f"kiwi {'e' * (n % 3)} {n}" for n in range(100)))
    report = detect_drift(before, after, config=feature(letters))
    (embedding,) = [one for one in report.features if one.kind == "vector"]
    assert (embedding.name, embedding.drifted) == ("my_embeddings.embed", True)
    calm = detect_drift(before, before, config=feature(letters))
    assert not calm.drifted


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda prompt: [1.0] * len(prompt), "vectors of one length"),
        (lambda prompt: [math.nan], "finite"),
        (lambda prompt: [], "finite"),
        (lambda prompt: [[1.0]], "finite"),
        (lambda prompt: [1.0, 2.0], "for every row"),
        (lambda prompt: [1.0] if "1" in prompt else "text", "texts alone"),
    ],
)
def test_vectors_that_cannot_be_compared_are_refused(
    function: Callable[[str], object],
    words: str,
    feature: Callable[[Callable[[str], object]], DriftConfig],
) -> None:
    rows = problems(*(f"prompt {'x' * n} {n}" for n in range(12)))
    with pytest.raises(ConfigError, match=words):
        detect_drift(rows, rows, config=feature(function))
