"""Two samples of vectors, such as embeddings of the prompts: the distance of their centroids, with permuted labels.

Owns the statistic; must not know where the vectors come from. More than `MAX_VECTORS` of a side are sampled.
"""

import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from infra.arrays import BoolArray, FloatArray
from tasks.drift.two_samples import SEED, Level, centroid_effect, draw_null, permutation_p_value

MAX_VECTORS: Final = 2_000
"""Vectors of a side that are compared: enough for every effect above the default floor to be seen."""
_BATCH: Final = 128


class VectorTest(NamedTuple):
    """The outcome, and how many vectors of each side it rests on."""

    statistic: float
    effect: float
    p_value: float
    smallest_detectable: float
    num_reference: int
    num_current: int


def compare_vectors(reference: FloatArray, current: FloatArray, level: Level) -> VectorTest:
    """Test two samples of vectors, shapes `(n, d)` and `(m, d)`; the order of the rows does not matter.

    Rows are scaled to length 1. The statistic is the squared distance of the two centroids; the effect is the distance
    with what permuted labels give on average taken off, in lengths of one vector.
    """
    rng = np.random.default_rng(SEED)
    sides = [_sample(_scaled(side), rng) for side in (reference, current)]
    sizes = (len(sides[0]), len(sides[1]))
    pooled = np.concatenate(sides)
    is_current = np.arange(len(pooled)) >= sizes[0]
    # In an order of their own, so that the same vectors meet the same permutations.
    order = np.lexsort(pooled.T[::-1])
    pooled, is_current = pooled[order], is_current[order]

    def distances(labels: BoolArray) -> FloatArray:
        """Of labellings, shape `(n + m, num_labellings)`."""
        gaps = pooled.T @ np.where(labels, 1 / sizes[1], -1 / sizes[0])
        return np.einsum("ij,ij->j", gaps, gaps).round(12)[None, :]

    def permuted() -> Iterator[FloatArray]:
        for _ in itertools.count():
            yield distances(rng.permuted(np.repeat(is_current[:, None], _BATCH, axis=1), axis=0))

    observed = distances(is_current[:, None])[:, 0]
    (null,) = draw_null(observed, permuted(), level, per_step=2)
    effect, smallest = centroid_effect(float(observed[0]), null, level)
    return VectorTest(
        statistic=float(observed[0]),
        effect=effect,
        p_value=permutation_p_value(float(observed[0]), null),
        smallest_detectable=smallest,
        num_reference=sizes[0],
        num_current=sizes[1],
    )


def _scaled(vectors: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def _sample(vectors: FloatArray, rng: np.random.Generator) -> FloatArray:
    if len(vectors) <= MAX_VECTORS:
        return vectors
    ordered = vectors[np.lexsort(vectors.T[::-1])]
    return ordered[np.sort(rng.choice(len(ordered), MAX_VECTORS, replace=False))]
