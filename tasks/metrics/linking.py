"""Which items two tables of samples share, whether they ask them alike, and which of them belong together."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.arrays import IntArray
from schemas.errors import DatasetError

_SAME_PER_ITEM: Final = {"prompt_hash": "prompts", "gold": "golds"}


def find_changed(baseline: pa.Table, candidate: pa.Table, key: str, shared: Sequence[str]) -> dict[str, set[str]]:
    """Return which shared items differ in the question asked or in the answer expected, by what differs.

    Args:
        baseline: columns of `samples`; what is not in both tables is not compared.
        candidate: the same.
        key: column that names the item.
        shared: items of both.
    """
    changed: dict[str, set[str]] = {}
    for name, plural in _SAME_PER_ITEM.items():
        if name != key and name in baseline.column_names and name in candidate.column_names:
            before, after = _by_item(baseline, key, name), _by_item(candidate, key, name)
            differing = {one for one in shared if before[one] != after[one]}
            if differing:
                changed[plural] = differing
    return changed


def link_items(shared: Sequence[str], changed: Mapping[str, set[str]], *, versions: str, min_items: int) -> list[str]:
    """Return the shared items that two versions of a dataset ask alike: over them, and only them, scores compare.

    Raises:
        DatasetError: fewer than `min_items`; says how many, and what differs in the others.
    """
    alike = sorted(set(shared).difference(*changed.values()))
    if len(alike) < min_items:
        others = "".join(f"; {what} of {len(items)} shared items differ" for what, items in changed.items())
        raise DatasetError(
            f"{versions}: the two share {len(alike)} items that are asked alike, at least {min_items} are needed to "
            f"link them{others}. Evaluate both checkpoints on one version (`milepost refresh CONFIG --rollback "
            "VERSION`), or keep more items with refresh.anchor_ratio"
        )
    return alike


def find_clusters(table: pa.Table, key: str | None) -> dict[str, str]:
    """Return the cluster of each item that does not stand alone; none where the table does not say."""
    if key is None or "cluster_id" not in table.column_names:
        return {}
    named = table.filter(pc.is_valid(table.column("cluster_id")))
    return {item: cluster for item, cluster in _by_item(named, key, "cluster_id").items() if cluster is not None}


def number_clusters(items: Sequence[str], cluster_of: Mapping[str, str]) -> IntArray:
    """Return the cluster of each item as numbers from 0; an item without one is a cluster of its own."""
    number: dict[tuple[str, bool], int] = {}
    names = [(cluster_of[item], True) if item in cluster_of else (item, False) for item in items]
    return np.array([number.setdefault(name, len(number)) for name in names], dtype=np.int64)


def _by_item(table: pa.Table, key: str, name: str) -> dict[str, str | None]:
    """Return the value of each item's first row; reduced by Arrow, for there may be a million rows."""
    ids = table.column(key).cast(pa.string())
    texts = table.column(name).cast(pa.string())
    firsts = (
        pa.table([ids, texts], names=["id", "text"]).group_by("id", use_threads=False).aggregate([("text", "first")])
    )
    return dict(zip(map(str, firsts.column("id").to_pylist()), firsts.column("text_first").to_pylist(), strict=True))
