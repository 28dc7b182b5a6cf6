"""What a version is drawn from: the pool as it is now, and the configured source."""

from collections.abc import Sequence
from typing import NamedTuple

from infra.datasets.digests import item_digest, unordered_digest
from infra.datasets.loading import load_candidates, load_dataset
from infra.datasets.sources.reasoning_gym_tasks import PREFIX, advance_seed
from infra.fileroot.validation_sets import versions_of
from schemas.config import EvaluationConfig
from schemas.dataset import EvalItem, LoadedDataset
from schemas.errors import DatasetError
from schemas.refresh import PoolSource
from tasks.drift.profiles import Rows, name_rows, tabulate
from tasks.validation_set.loading import choose_gold_check, load_graded
from tasks.validation_set.refused_rows import refused_rows_kept


class Pool(NamedTuple):
    """What there is to draw from."""

    sources: tuple[PoolSource, ...]
    items: list[EvalItem]
    digests: list[str]
    """Of each item."""


def read_current(config: EvaluationConfig) -> Sequence[EvalItem]:
    """Return what would be asked if a version were drawn now: the pool where one is configured, else the set itself.

    Raises:
        DatasetError: a source cannot be read.
        StoreError: the current version cannot be read.
    """
    if not config.refresh.pool:
        return load_graded(config).items
    store = versions_of(config)
    current = store.current()
    return read_pool(config, steps=store.read_manifest(current).number if current is not None else 1).items


def read_current_rows(config: EvaluationConfig) -> Rows:
    """Return the same as rows for a check of drift.

    Raises:
        DatasetError, StoreError: as `read_current`.
    """
    return name_rows(tabulate(read_current(config)))


def read_source(config: EvaluationConfig) -> LoadedDataset:
    """Return all of the configured dataset, with the rows that its items were made of.

    Raises:
        DatasetError: it cannot be read, or has rows that cannot be graded.
    """
    section = config.valid_dataset.model_copy(update={"limit": None})
    with refused_rows_kept(config, section):
        return load_dataset(section, seed=config.seed, check_golds=choose_gold_check(config), keeps_rows=True)


def read_pool(config: EvaluationConfig, *, steps: int) -> Pool:
    """Read every dataset of the pool; procedural ones are drawn anew, `steps` away from their configured seed.

    Raises:
        DatasetError: one cannot be read.
    """
    sources: list[PoolSource] = []
    pool: list[EvalItem] = []
    all_digests: list[str] = []
    for path in config.refresh.pool:
        moved = advance_seed(path, steps, seed=config.seed) if path.startswith(PREFIX) else path
        section = config.valid_dataset.model_copy(update={"path": moved, "limit": None})
        try:
            with refused_rows_kept(config, section):
                items = load_candidates(section, seed=config.seed)
        except DatasetError as exc:
            raise DatasetError(f"refresh.pool: {exc}") from exc
        digests = [item_digest(item) for item in items]
        sources.append(PoolSource(path=moved, num_items=len(items), digest=unordered_digest(digests)))
        all_digests += digests
        pool += items
    return Pool(tuple(sources), pool, all_digests)
