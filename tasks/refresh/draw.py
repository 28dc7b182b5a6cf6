"""Choose the items of a new version: anchors of the old one, and the pool's own mixture beside them.

Pure and deterministic: the order of the draw is a keyed hash of each item, so that neither the order of the pool's rows
nor the machine matters.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infra.datasets.digests import item_digest
from infra.datasets.loading import CheckGolds
from schemas.dataset import EvalItem
from schemas.errors import DatasetError
from schemas.refresh import RefusedGold, StratumDraw
from tasks.refresh.cleaning import CleanPool, stratum_of
from tasks.refresh.quotas import Stratum, largest_remainder


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The items of a version."""

    items: tuple[EvalItem, ...]
    """Anchors and drawn items together, in the order of the draw."""
    strata: tuple[StratumDraw, ...]
    """What each stratum gave beside the anchors."""
    refused_golds: tuple[RefusedGold, ...]
    """Items that were passed over."""


def draw_salt(*, seed: int, parent_digest: str, pool_digest: str) -> bytes:
    """Return the key of a draw: another seed, parent or pool gives another order."""
    return hashlib.blake2b(f"{seed}\x00{parent_digest}\x00{pool_digest}".encode(), digest_size=32).digest()


def rank(items: Sequence[EvalItem], salt: bytes, digests: Iterable[str] | None = None) -> list[EvalItem]:
    """Return the items in the order of the draw, which is random but for `salt`.

    `digests` are those of the items (`item_digest`), for who has them already.
    """
    if digests is None:
        digests = map(item_digest, items)
    keys = [hashlib.blake2b(digest.encode(), digest_size=16, key=salt).digest() for digest in digests]
    return [items[place] for place in sorted(range(len(items)), key=lambda place: (keys[place], items[place].item_id))]


def choose_anchors(
    parent: Sequence[EvalItem], count: int, *, kept_before: frozenset[str], stratify_by: Sequence[str], salt: bytes
) -> list[EvalItem]:
    """Return `count` items of the parent (all, if it has fewer), in proportion to its strata.

    Those that were anchors before go first: the same items then link all versions, not only neighbours.
    """
    ranked = rank(parent, salt)
    old = _pick([item for item in ranked if item.item_id in kept_before], count, stratify_by)
    new = _pick([item for item in ranked if item.item_id not in kept_before], count - len(old), stratify_by)
    return old + new


def _pick(ranked: Sequence[EvalItem], count: int, stratify_by: Sequence[str]) -> list[EvalItem]:
    strata: defaultdict[Stratum, list[EvalItem]] = defaultdict(list)
    for item in ranked:
        strata[stratum_of(item, stratify_by)].append(item)
    weights = {stratum: len(items) for stratum, items in strata.items()}
    quotas = largest_remainder(min(count, len(ranked)), weights)
    return [item for stratum, items in strata.items() for item in items[: quotas[stratum]]]


def draw_items(
    pool: CleanPool,
    *,
    size: int,
    stratify_by: Sequence[str],
    check_golds: CheckGolds,
    salt: bytes,
) -> Draw:
    """Return `size` items: the anchors, and as many of each stratum as give the whole the pool's mixture.

    Raises:
        DatasetError: strata lack items; names them and how many.
    """
    wanted = _count_wanted(pool, size=size, stratify_by=stratify_by)
    strata: dict[Stratum, list[EvalItem]] = {stratum: [] for stratum in wanted}
    for item in pool.candidates:
        strata[stratum_of(item, stratify_by)].append(item)
    had = {stratum: len(items) for stratum, items in strata.items()}
    refused = _pass_over_unreadable(strata, wanted, check_golds)
    table = tuple(
        StratumDraw(
            stratum=dict(zip(stratify_by, stratum, strict=True)),
            wanted=wanted[stratum],
            had=had[stratum],
            drawn=min(wanted[stratum], len(strata[stratum])),
        )
        for stratum in sorted(strata)
    )
    if any(row.drawn < row.wanted for row in table):
        raise DatasetError(_describe_shortage(table, pool, refused, size))
    drawn = [item for stratum, items in strata.items() for item in items[: wanted[stratum]]]
    return Draw(items=tuple(rank([*pool.anchors, *drawn], salt)), strata=table, refused_golds=tuple(refused))


def _count_wanted(pool: CleanPool, *, size: int, stratify_by: Sequence[str]) -> dict[Stratum, int]:
    """Return how many items of each stratum bring the version, anchors included, closest to the pool's mixture."""
    if not pool.distribution:
        raise DatasetError("refresh.pool holds no problem that is not an anchor already; add data to it")
    whole = largest_remainder(size, pool.distribution)
    kept = Counter(stratum_of(item, stratify_by) for item in pool.anchors)
    missing = {stratum: max(0, share - kept[stratum]) for stratum, share in whole.items()}
    return largest_remainder(size - len(pool.anchors), missing)


def _pass_over_unreadable(
    strata: Mapping[Stratum, list[EvalItem]], wanted: Mapping[Stratum, int], check_golds: CheckGolds
) -> list[RefusedGold]:
    """Remove from the front of each stratum what cannot be graded, until what will be drawn can.

    Only what is about to be drawn is checked, and more ahead the more is refused: a gold in LaTeX takes milliseconds, a
    pool may have a million.
    """
    refused: list[RefusedGold] = []
    checked: set[str] = set()
    while True:
        fresh = [
            item
            for stratum, items in strata.items()
            for item in items[: wanted[stratum] + len(refused) if wanted[stratum] else 0]
            if item.grader == "math" and item.item_id not in checked
        ]
        if not fresh:
            return refused
        reasons = check_golds([item.gold for item in fresh])
        checked |= {item.item_id for item in fresh}
        bad = {item.item_id: reason for item, reason in zip(fresh, reasons, strict=True) if reason is not None}
        refused += [RefusedGold(item_id=item_id, reason=reason) for item_id, reason in bad.items()]
        for items in strata.values():
            items[:] = [item for item in items if item.item_id not in bad]


def _describe_shortage(table: Sequence[StratumDraw], pool: CleanPool, refused: Sequence[RefusedGold], size: int) -> str:
    short = [row for row in table if row.drawn < row.wanted]
    lines = [
        f"  {', '.join(f'{key}={value}' for key, value in row.stratum.items()) or 'all'}: wanted {row.wanted:,}, has "
        f"{row.drawn:,}, {row.wanted - row.drawn:,} too few"
        for row in short[:20]
    ]
    more = [f"  ... and {len(short) - 20:,} more strata"] if len(short) > 20 else []
    report = pool.contamination
    left_out = (
        f"{pool.num_exact_duplicates:,} exact and {pool.num_near_duplicates:,} near duplicates, "
        f"{report.num_exact + report.num_ngram + report.num_minhash:,} seen in training, {len(refused):,} whose gold "
        "cannot be graded"
    )
    return "\n".join(
        [
            f"the pool is too small for a version of {size:,} items; no version was made. Strata that lack items:",
            *lines,
            *more,
            f"Left out of the pool: {left_out}.",
            "Add data to refresh.pool, lower refresh.size, or set refresh.stratify_by to fewer keys",
        ]
    )
