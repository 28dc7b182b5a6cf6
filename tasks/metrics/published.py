"""Compare two published runs: their samples, and everything the store knows to differ between them."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from infra.machine.provenance import describe_version_differences
from infra.store import Store
from schemas.comparison import CompareConfig, Comparison
from schemas.errors import StoreError
from schemas.stand_in import DUMMY_ENGINE, is_dummy
from tasks.metrics.comparison import compare

_COLUMNS: Final = (
    "run_id",
    "dataset",
    "dataset_version",
    "item_id",
    "prompt_hash",
    "gold",
    "verdict",
    "score",
    "cluster_id",
)
"""What a comparison reads of `samples`; the texts stay on disk."""

_SETTINGS: Final = (
    "engine",
    "dtype",
    "device",
    "seed",
    "n_samples",
    "tokenizer_digest",
    "chat_template_digest",
    "model_config_digest",
    "milepost_version",
    "git_commit",
)
"""Columns of `runs` that shape numbers; versions are compared package by package."""

_LATER: Final = frozenset({"model_config_digest"})
"""Those of them that runs of earlier versions lack: unknown is no difference."""


def compare_runs(store: Store, baseline: str, candidate: str, *, config: CompareConfig | None = None) -> Comparison:
    """Return how run `candidate` differs from run `baseline`; every difference beside the weights is named.

    Raises:
        StoreError: one of the runs is not in the store, or one alone is of the dummy engine.
        DatasetError: the runs are of different versions of the dataset, which share too few items.
    """
    if baseline == candidate:
        raise StoreError(f"both runs are {baseline!r}; name two runs of `milepost runs`")
    before, after = (_run_row(store, run) for run in (baseline, candidate))
    _refuse_dummy(before, after)
    tables = [store.table("samples", run_id=run).to_table(columns=list(_COLUMNS)) for run in (baseline, candidate)]
    comparison = compare(tables[0], tables[1], config=config)
    named = tuple(
        f"{name} {before[name]} -> {after[name]}"
        for name in _SETTINGS
        if before.get(name) != after.get(name) and not (name in _LATER and None in (before.get(name), after.get(name)))
    )
    versions = tuple(describe_version_differences(_versions(before), _versions(after)))
    return comparison.model_copy(update={"differences": (*comparison.differences, *named, *versions)})


def _refuse_dummy(*rows: Mapping[str, object]) -> None:
    """Refuse to compare what a model said with what was made up.

    Raises:
        StoreError: one run is of the dummy engine and the other is not.
    """
    dummies = [row["run_id"] for row in rows if is_dummy(str(row["engine"]))]
    if len(dummies) == 1:
        other = next(row for row in rows if row["run_id"] != dummies[0])
        raise StoreError(
            f"run {dummies[0]} is of the {DUMMY_ENGINE} (engine.stand_in), which makes its answers up, and run "
            f"{other['run_id']} of {other['engine']}: the two are never compared; name two runs of models "
            f"(`milepost runs` marks the others)"
        )


def _run_row(store: Store, run_id: str) -> Mapping[str, object]:
    table: pa.Table = store.table("runs", run_id=run_id).to_table()
    rows: list[dict[str, object]] = table.to_pylist(maps_as_pydicts="strict")
    return rows[0]


def _versions(row: Mapping[str, object]) -> Mapping[str, str]:
    versions = row.get("versions")
    return {str(name): str(version) for name, version in versions.items()} if isinstance(versions, dict) else {}
