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

ChooseAnchors = Callable[[Sequence[EvalItem]], list[EvalItem]]
"""Which items of the parent stay, of those that training has not seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPool:
    """What may be drawn, and what was left out."""

    anchors: tuple[EvalItem, ...]
    """Items of the parent that stay."""
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
    parent: Sequence[EvalItem],
    *,
    choose_anchors: ChooseAnchors,
    stratify_by: Sequence[str],
    near_duplicate: float,
    search: Search,
) -> CleanPool:
    """Return the items of a pool that may stand beside the anchors, and these.

    Of equal or similar problems an anchor is kept, else the first of `ranked`, the pool in the order of the draw.

    Raises:
        DatasetError: an id names two different problems of the pool.
    """
    distinct = _without_copies(ranked)
    words = hash_words([_wording(item) for item in (*parent, *distinct)], WordHashes())
    found = search([Problem(item.item_id, problem_text(item)) for item in (*parent, *distinct)], words)
    is_seen = found.is_contaminated.tolist()
    anchors = choose_anchors([item for item, seen in zip(parent, is_seen[: len(parent)], strict=True) if not seen])
    fresh = _without_anchors(distinct, anchors)
    place_of = {item.item_id: place for place, item in enumerate(parent)}
    new_place_of = {item.item_id: place for place, item in enumerate(distinct, start=len(parent))}
    places = [place_of[item.item_id] for item in anchors] + [new_place_of[item.item_id] for item in fresh]
    shingles = hash_runs(words.take(np.array(places, dtype=np.int64)), SHINGLE_WORDS)
    near = find_near_duplicates(without(shingles, find_boilerplate(shingles)), threshold=near_duplicate).tolist()
    remaining = [item for item, is_near in zip(fresh, near[len(anchors) :], strict=True) if not is_near]
    return CleanPool(
        anchors=tuple(anchors),
        candidates=tuple(item for item in remaining if not is_seen[new_place_of[item.item_id]]),
        distribution=Counter(stratum_of(item, stratify_by) for item in remaining),
        num_exact_duplicates=len(ranked) - len(fresh),
        num_near_duplicates=len(fresh) - len(remaining),
        contamination=found.report,
    )


def _without_copies(ranked: Sequence[EvalItem]) -> list[EvalItem]:
    """Return the items whose text no earlier one has."""
    texts: set[str] = set()
    kept: dict[str, EvalItem] = {}
    for item in ranked:
        text = normalise(problem_text(item))
        if text in texts:
            continue
        texts.add(text)
        other = kept.setdefault(item.item_id, item)
        if other is not item:
            raise DatasetError(
                f"refresh.pool: the id {item.item_id!r} names two different problems, {_shown(other)} and "
                f"{_shown(item)}; make ids unique over all files of the pool, or remove valid_dataset.columns.id"
            )
    return list(kept.values())


def _without_anchors(items: Sequence[EvalItem], anchors: Sequence[EvalItem]) -> list[EvalItem]:
    """Return the items that have neither the text nor the id of an anchor."""
    texts = {normalise(problem_text(item)) for item in anchors}
    ids = {item.item_id for item in anchors}
    return [item for item in items if item.item_id not in ids and normalise(problem_text(item)) not in texts]


def _wording(item: EvalItem) -> str:
    """Return the text that similarity is judged by: none for a problem that a task generated, since such problems share
    their wording by design and are equal or different."""
    return "" if item.grader == "reasoning_gym" else problem_text(item)


def _shown(item: EvalItem) -> str:
    return repr(problem_text(item)[:60])
