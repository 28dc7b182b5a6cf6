"""What of a pool may be drawn: no problem twice or nearly so, none that is an anchor, none that training has seen."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from infra.datasets.conversation import problem_text
from schemas.dataset import EvalItem
from schemas.errors import DatasetError
from schemas.refresh import ContaminationReport
from tasks.refresh.contamination import Found, Problem
from tasks.refresh.near_duplicates import SHINGLE_WORDS, find_boilerplate, find_near_duplicates, without
from tasks.refresh.quotas import Stratum
from tasks.refresh.shingles import HashRows, WordHashes, hash_runs, hash_words, normalise

Search = Callable[[Sequence[Problem], HashRows], Found]
"""Which of some problems, given with their words, occur in the training data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPool:
    """What may be drawn, and what was left out."""

    candidates: tuple[EvalItem, ...]
    """In the order of the draw."""
    distribution: Mapping[Stratum, int]
    """Distinct problems of each stratum, those included that training has seen: what is asked now."""
    num_exact_duplicates: int
    num_near_duplicates: int
    contamination: ContaminationReport


def stratum_of(item: EvalItem, keys: Sequence[str]) -> Stratum:
    """Return the item's values of some subset keys."""
    return tuple(item.subsets.get(key, "") for key in keys)


def clean_pool(
    ranked: Sequence[EvalItem],
    anchors: Sequence[EvalItem],
    *,
    stratify_by: Sequence[str],
    near_duplicate: float,
    search: Search,
) -> CleanPool:
    """Return the items of a pool that may stand beside `anchors`.

    Of several equal or similar problems the first of `ranked`, the pool in the order of the draw, is kept.

    Raises:
        DatasetError: an id names two different problems of the pool.
    """
    distinct = _without_copies(ranked, anchors)
    words = hash_words([_wording(item) for item in (*anchors, *distinct)], WordHashes())
    shingles = hash_runs(words, SHINGLE_WORDS)
    near = find_near_duplicates(without(shingles, find_boilerplate(shingles)), threshold=near_duplicate)
    places = np.flatnonzero(~near[len(anchors) :])
    remaining = [distinct[place] for place in places.tolist()]
    problems = [Problem(item.item_id, problem_text(item)) for item in remaining]
    found = search(problems, words.take(places + len(anchors)))
    return CleanPool(
        candidates=tuple(
            item for item, seen in zip(remaining, found.is_contaminated.tolist(), strict=True) if not seen
        ),
        distribution=Counter(stratum_of(item, stratify_by) for item in remaining),
        num_exact_duplicates=len(ranked) - len(distinct),
        num_near_duplicates=len(distinct) - len(remaining),
        contamination=found.report,
    )


def _without_copies(ranked: Sequence[EvalItem], anchors: Sequence[EvalItem]) -> list[EvalItem]:
    """Return the items whose text no anchor and no earlier item has, and whose id no anchor has."""
    texts = {normalise(problem_text(item)) for item in anchors}
    anchor_ids = {item.item_id for item in anchors}
    kept: dict[str, EvalItem] = {}
    for item in ranked:
        text = normalise(problem_text(item))
        if text in texts or item.item_id in anchor_ids:
            continue
        texts.add(text)
        other = kept.setdefault(item.item_id, item)
        if other is not item:
            raise DatasetError(
                f"refresh.pool: the id {item.item_id!r} names two different problems, {_shown(other)} and "
                f"{_shown(item)}; make ids unique over all files of the pool, or remove valid_dataset.columns.id"
            )
    return list(kept.values())


def _wording(item: EvalItem) -> str:
    """Return the text that similarity is judged by: none for a problem that a task generated, since such problems share
    their wording by design and are equal or different."""
    return "" if item.grader == "reasoning_gym" else problem_text(item)


def _shown(item: EvalItem) -> str:
    return repr(problem_text(item)[:60])
