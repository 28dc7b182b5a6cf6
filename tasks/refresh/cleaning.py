"""What of a pool may be drawn: no problem twice or nearly so, none that is an anchor, none that training has seen."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from infra.datasets.conversation import problem_text
from schemas.dataset import EvalItem
from schemas.errors import DatasetError
from schemas.refresh import ContaminationReport
from tasks.refresh.contamination import Found, Problem
from tasks.refresh.near_duplicates import NearDuplicates
from tasks.refresh.quotas import Stratum
from tasks.refresh.shingles import HashRows, Vocabulary, normalise

Search = Callable[[Sequence[Problem], HashRows, NearDuplicates], Found]
"""Which of some problems, given with their words and the index of these, occur in the training data."""

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
    distinct = _without_copies([_read(item) for item in ranked])
    problems = [*(_read(item) for item in parent), *distinct]
    words = Vocabulary().hash_words([_wording(problem) for problem in problems])
    similar = NearDuplicates(words, near_duplicate)
    found = search(problems, words, similar)
    is_seen = found.is_contaminated.tolist()
    anchors = choose_anchors([item for item, seen in zip(parent, is_seen[: len(parent)], strict=True) if not seen])
    kept, fresh = _place(problems, len(parent), {item.item_id for item in anchors})
    near = similar.find_repeats(fresh, beside=kept).tolist()
    remaining = [place for place, is_near in zip(fresh, near, strict=True) if not is_near]
    return CleanPool(
        anchors=tuple(anchors),
        candidates=tuple(problems[place].item for place in remaining if not is_seen[place]),
        distribution=Counter(stratum_of(problems[place].item, stratify_by) for place in remaining),
        num_exact_duplicates=len(ranked) - len(fresh),
        num_near_duplicates=len(fresh) - len(remaining),
        contamination=found.report,
    )


def _place(problems: Sequence[Problem], num_parent: int, anchor_ids: Set[str]) -> tuple[list[int], list[int]]:
    """Return where the anchors stand among `problems`, the parent's first, and the pool's that have neither their text
    nor their id."""
    kept = [place for place in range(num_parent) if problems[place].item.item_id in anchor_ids]
    forms = {problems[place].form for place in kept}
    fresh = [
        place
        for place, problem in enumerate(problems[num_parent:], start=num_parent)
        if problem.form not in forms and problem.item.item_id not in anchor_ids
    ]
    return kept, fresh


def _read(item: EvalItem) -> Problem:
    text = problem_text(item)
    return Problem(item, text, normalise(text))


def _without_copies(ranked: Sequence[Problem]) -> list[Problem]:
    """Return the problems whose text no earlier one has."""
    forms: set[str] = set()
    kept: dict[str, Problem] = {}
    for problem in ranked:
        if problem.form in forms:
            continue
        forms.add(problem.form)
        other = kept.setdefault(problem.item.item_id, problem)
        if other is not problem:
            raise DatasetError(
                f"refresh.pool: the id {problem.item.item_id!r} names two different problems, {other.text[:60]!r} and "
                f"{problem.text[:60]!r}; make ids unique over all files of the pool, or remove valid_dataset.columns.id"
            )
    return list(kept.values())


def _wording(problem: Problem) -> str:
    """Return the normalised text that similarity is judged by: none for a problem that a task generated, since such
    problems share their wording by design and are equal or different."""
    return "" if problem.item.grader == "reasoning_gym" else problem.form
