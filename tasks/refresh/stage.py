"""refresh-validation-set: a new version of the validation set, drawn from the pool and put in place of the current one.

Owns the order of things; nothing is written before the whole version is known.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from infra.datasets.digests import dataset_version, item_digest, unordered_digest
from infra.datasets.naming import dataset_name
from infra.datasets.texts import read_texts
from infra.fileroot.validation_sets import versions_of
from schemas.config import EvaluationConfig
from schemas.dataset import EvalItem
from schemas.errors import ConfigError, DatasetError
from schemas.refresh import (
    ContaminationReport,
    DrawReport,
    RefreshOutcome,
    VersionDraft,
    VersionManifest,
    VersionOrigin,
)
from schemas.training_position import TrainingPosition
from tasks.drift.profiles import name_rows, tabulate
from tasks.drift.stage import freeze_reference
from tasks.refresh.cleaning import clean_pool
from tasks.refresh.contamination import Found, Problem, SearchLimits, TrainingSearch
from tasks.refresh.draw import choose_anchors, draw_items, draw_salt, rank
from tasks.refresh.near_duplicates import NearDuplicates
from tasks.refresh.schedule import find_reason
from tasks.refresh.shingles import HashRows
from tasks.refresh.source import Pool, read_pool, read_source
from tasks.refresh.summary import summarise
from tasks.validation_set.loading import choose_gold_check
from tasks.validation_set.versions import require_same_prompts

_TRAINING_SPLIT: Final = "train"
_NOT_SEARCHED: Final = ContaminationReport(
    training_data=(),
    num_training_rows=0,
    num_checked=0,
    num_exact=0,
    num_ngram=0,
    num_minhash=0,
    share_removed=None,
    matches=(),
)


class _Version(NamedTuple):
    """Items, and what is known of them."""

    draft: VersionDraft
    items: tuple[EvalItem, ...]


def refresh_if_due(
    config: EvaluationConfig, *, drifted: Sequence[str], position: TrainingPosition, now: datetime
) -> RefreshOutcome | None:
    """Draw a new version if drift was found or the schedule asks for one, as `refresh.on` says; None when neither.

    With a schedule and no version yet, the source becomes the first one, from which the schedule counts.

    Args:
        config: What is about to be evaluated.
        drifted: Names of the features that drifted.
        position: Of the checkpoint.
        now: With its time zone.

    Raises:
        UserInputError: as `refresh_validation_set`.
    """
    if not config.refresh.pool:
        return None
    store = versions_of(config)
    name = store.current()
    current = store.read_manifest(name) if name is not None else None
    reason = find_reason(config.refresh, current, drifted=drifted, position=position, now=now)
    if reason is not None:
        return refresh_validation_set(config, reason=reason, position=position, now=now)
    if current is None and config.refresh.is_scheduled:
        store.publish_first(*_read_source(config, position, now))
    return None


def refresh_validation_set(
    config: EvaluationConfig, *, reason: str, position: TrainingPosition, now: datetime
) -> RefreshOutcome:
    """Draw a new version from the pool and make it current; without a version yet the source becomes the first.

    Deterministic in the seed, the current version and the pool; killed at any moment it leaves the old version or the
    new one; of two at once one makes the version and both return it.

    Args:
        config: The sections `refresh` and `valid_dataset` decide.
        reason: Why, as the manifest will say.
        position: Of the checkpoint that is about to be evaluated.
        now: With its time zone.

    Raises:
        ConfigError: no pool is configured, or the prompts are asked in another way than those of the current version.
        DatasetError: a source cannot be read, or the pool is too small; nothing was written.
        StoreError: the versions cannot be read or written.
    """
    if not config.refresh.pool:
        raise ConfigError(
            "refresh.pool is empty, so there is nothing to draw a new validation set from; set it to datasets such as "
            "refresh.pool=[data/new.jsonl]"
        )
    store = versions_of(config)
    current = store.current()
    stored = store.read(current) if current is not None else None
    parent = _Version(*stored) if stored is not None else _read_source(config, position, now)
    require_same_prompts(config, parent.draft)
    pool = read_pool(config, steps=stored.manifest.number if stored is not None else 1)
    items, draw = _draw(config, parent, pool)
    if current is None:
        current = store.publish_first(*parent).version
    origin = VersionOrigin(reason=reason, created_at=now, position=position)
    published = store.publish(*_describe(config, items, origin, parent=current, draw=draw))
    if published.is_new:
        # the pool as it was: what later ones are compared with to see drift
        freeze_reference(config, name_rows(tabulate(pool.items)), published.manifest.version)
    summary = summarise(published.manifest, is_new=published.is_new)
    return RefreshOutcome(manifest=published.manifest, is_new=published.is_new, summary=summary)


def roll_back(config: EvaluationConfig, version: str) -> VersionManifest:
    """Make another version (a name or its number alone, such as v2) current again; nothing is deleted.

    Raises:
        StoreError: no such version; names those that there are.
    """
    return versions_of(config).rollback(version)


def _read_source(config: EvaluationConfig, position: TrainingPosition, now: datetime) -> _Version:
    """Return the configured dataset as the first version."""
    dataset = read_source(config)
    origin = VersionOrigin(reason="the source as it was", created_at=now, position=position)
    return _describe(config, dataset.items, origin, parent=None, draw=None)


def _draw(config: EvaluationConfig, parent: _Version, pool: Pool) -> tuple[tuple[EvalItem, ...], DrawReport]:
    """Choose the items of the version that follows `parent`."""
    section = config.refresh
    size = section.size or len(parent.items)
    keys = _choose_strata(section.stratify_by, pool.items)
    salt = draw_salt(
        seed=config.seed, parent_digest=parent.draft.content_digest, pool_digest=unordered_digest(pool.digests)
    )
    clean = clean_pool(
        rank(pool.items, salt, pool.digests),
        parent.items,
        choose_anchors=partial(
            choose_anchors,
            count=round(section.anchor_ratio * size),
            kept_before=frozenset(parent.draft.draw.anchors if parent.draft.draw else ()),
            stratify_by=keys,
            salt=salt,
        ),
        stratify_by=keys,
        near_duplicate=section.near_duplicate,
        search=partial(_search_training_data, config),
    )
    draw = draw_items(clean, size=size, stratify_by=keys, check_golds=choose_gold_check(config), salt=salt)
    report = DrawReport(
        seed=config.seed,
        pool=pool.sources,
        stratify_by=keys,
        strata=draw.strata,
        anchors=tuple(sorted(item.item_id for item in clean.anchors)),
        num_exact_duplicates=clean.num_exact_duplicates,
        num_near_duplicates=clean.num_near_duplicates,
        contamination=clean.contamination,
        refused_golds=draw.refused_golds,
    )
    return draw.items, report


def _describe(
    config: EvaluationConfig,
    items: tuple[EvalItem, ...],
    origin: VersionOrigin,
    *,
    parent: str | None,
    draw: DrawReport | None,
) -> _Version:
    draft = VersionDraft(
        dataset=dataset_name(config.valid_dataset),
        content_digest=dataset_version(items),
        parent=parent,
        origin=origin,
        prompt_suffix=config.valid_dataset.prompt_suffix,
        system_prompt=config.valid_dataset.system_prompt,
        draw=draw,
        item_digests={item.item_id: item_digest(item) for item in items},
    )
    return _Version(draft, items)


def _choose_strata(configured: Sequence[str] | None, pool: Sequence[EvalItem]) -> tuple[str, ...]:
    known = sorted({key for item in pool for key in item.subsets})
    if configured is None:
        return tuple(known)
    unknown = [key for key in configured if key not in known]
    if unknown:
        raise ConfigError(
            f"refresh.stratify_by names {unknown[0]!r}, which no item of the pool has; it has "
            f"{', '.join(map(repr, known)) or 'no subsets'}"
        )
    return tuple(configured)


def _search_training_data(
    config: EvaluationConfig, problems: Sequence[Problem], words: HashRows, similar: NearDuplicates
) -> Found:
    """Look for problems of the pool in `refresh.training_data`."""
    section = config.refresh
    if not section.training_data:
        return Found(np.zeros(len(problems), dtype=np.bool_), _NOT_SEARCHED)
    limits = SearchLimits(ngram=section.ngram, max_overlap=section.max_overlap)
    search = TrainingSearch(problems, words, similar, limits)
    for path in section.training_data:
        try:
            search.look_through(path, read_texts(path, split=_TRAINING_SPLIT, seed=config.seed))
        except DatasetError as exc:
            raise DatasetError(f"refresh.training_data: {exc}") from exc
    return search.finish()
