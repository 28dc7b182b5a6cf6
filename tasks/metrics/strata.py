"""Which items belong to which subset: `all`, then one `key=value` per value of the column `subsets`.

Owns the names and the membership; knows no metric.
"""

from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from infra.arrays import IntArray
from schemas.errors import DistributedEvaluationError
from schemas.summary import WHOLE_SET
from tasks.metrics.columns import SampleColumns, code_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Strata:
    """Membership as pairs, arrays of shape `(num_memberships,)`."""

    names: list[str]
    """Subsets in order: `all`, then by key and value."""
    subset: IntArray
    """Index into `names` of each membership."""
    item: IntArray
    """Index of the item of each membership."""
    cluster: IntArray
    """Index of the cluster of each membership, an item where every item stands alone."""
    cluster_subset: IntArray
    """Index into `names` of each cluster, `(num_clusters,)`: those of one subset are none of another's."""


def read_strata(columns: SampleColumns) -> Strata:
    """Return the subsets of the items; an item's strata are those of its first repeat.

    Raises:
        DistributedEvaluationError: the column `subsets` is neither a map nor a struct of text.
    """
    everything = np.arange(columns.num_items)
    whole = np.zeros(columns.num_items, dtype=np.int64)
    if columns.subsets is None or columns.num_items == 0:
        return _with_clusters([WHOLE_SET], whole, everything, columns.cluster)
    pairs = _pairs(columns.subsets.take(columns.row[columns.first_row]))
    key, value = code_text(pairs, "key"), code_text(pairs, "value")
    member = pairs.column("item").to_numpy()[value.codes >= 0]
    code = (key.codes * max(len(value.values), 1) + value.codes)[value.codes >= 0]
    distinct, subset = np.unique(code, return_inverse=True)
    # codes count values in order of appearance; names put the subsets in an order of their own
    labels = [divmod(int(one), max(len(value.values), 1)) for one in distinct]
    named = [(key.values[k], value.values[v]) for k, v in labels]
    order = sorted(range(len(named)), key=named.__getitem__)
    rank = np.empty(len(named), dtype=np.int64)
    rank[np.array(order, dtype=np.int64)] = np.arange(1, len(named) + 1)
    return _with_clusters(
        [WHOLE_SET, *(f"{named[index][0]}={named[index][1]}" for index in order)],
        np.concatenate([whole, rank[subset]]),
        np.concatenate([everything, member]),
        columns.cluster,
    )


def _with_clusters(names: list[str], subset: IntArray, item: IntArray, cluster: IntArray | None) -> Strata:
    if cluster is None:
        return Strata(names=names, subset=subset, item=item, cluster=np.arange(len(item)), cluster_subset=subset)
    num_clusters = int(cluster.max(initial=0)) + 1
    pairs, place = np.unique(subset * num_clusters + cluster[item], return_inverse=True)
    return Strata(names=names, subset=subset, item=item, cluster=place, cluster_subset=pairs // num_clusters)


def _pairs(strata: "pa.ChunkedArray[Any]") -> pa.Table:
    """Return one row (item, key, value) per stratum of an item."""
    kind = strata.type
    if pa.types.is_map(kind):
        return _map_pairs(strata)
    if pa.types.is_struct(kind):
        # what a table made from Python dictionaries without a schema has: one field per key
        everything = np.arange(len(strata))
        tables = [
            _pairs_table(everything, [name] * len(strata), value)
            for name, value in zip((field.name for field in kind), strata.flatten(), strict=True)
        ]
        return pa.concat_tables(tables) if tables else _NO_PAIRS
    raise DistributedEvaluationError(f"column 'subsets' must be map<string, string>, got {kind}")


def _map_pairs(strata: "pa.ChunkedArray[Any]") -> pa.Table:
    tables = [_NO_PAIRS]
    start = 0
    for chunk in cast("list[pa.MapArray[Any, Any]]", strata.chunks):
        offsets = chunk.offsets.to_numpy()
        owner = np.repeat(np.arange(start, start + len(chunk)), np.diff(offsets))
        # a slice keeps the children of the whole array
        first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
        keys, values = chunk.keys.slice(first, length), chunk.items.slice(first, length)
        tables.append(_pairs_table(owner, keys, values))
        start += len(chunk)
    return pa.concat_tables(tables)


def _pairs_table(
    item: IntArray, key: "list[str] | pa.Array[Any]", value: "pa.Array[Any] | pa.ChunkedArray[Any]"
) -> pa.Table:
    columns = [pa.chunked_array([pa.array(item)]), pa.chunked_array([key], pa.string()), value.cast(pa.string())]
    return pa.Table.from_arrays(columns, schema=_PAIRS)


_PAIRS: Final = pa.schema([("item", pa.int64()), ("key", pa.string()), ("value", pa.string())])
_NO_PAIRS: Final = _PAIRS.empty_table()
