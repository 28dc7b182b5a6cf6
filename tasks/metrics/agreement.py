"""Agreement of the repeats of an item on their answer: the metric `self_consistency`.

Owns the formula; what counts as one answer is `voting`'s. Says nothing about whether the answer is correct.
"""

import numpy as np

from infra.arrays import BoolArray, FloatArray, IntArray
from tasks.metrics.voting import ABSTAINS, CORRECT


def agreement_per_item(items: IntArray, answers: IntArray, correct: BoolArray, *, num_items: int) -> FloatArray:
    """Return the share of pairs of samples of each item that give the same answer, in [0, 1]; shape `(num_items,)`.

    The unbiased estimate of the chance that two samples agree, sum c (c - 1) / (n (n - 1)) over the answers with c of
    n samples (Simpson, Measurement of Diversity, Nature 163, 1949). NaN with fewer than two samples.

    Args:
        items: item of each scored sample; shape `(num_samples,)`, any order.
        answers: code of its normalised answer; `ABSTAINS` without one, which agrees with no other sample.
        correct: whether it is correct; correct samples agree whatever their spelling.
        num_items: items in all.
    """
    choice = np.where(correct, CORRECT, answers)
    answered = choice != ABSTAINS
    width = int(choice.max(initial=0)) - CORRECT + 1
    pair, size = np.unique((items * width + choice - CORRECT)[answered], return_counts=True)
    agreeing = np.bincount(pair // width, size * (size - 1.0), minlength=num_items)
    num_samples = np.bincount(items, minlength=num_items).astype(np.float64)
    possible = num_samples * (num_samples - 1)
    return np.where(possible > 0, agreeing / np.maximum(possible, 1), np.nan)
